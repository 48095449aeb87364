"""The chat application as a surface: its routes, from Starlette's table, and its agent's tools."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, cast
from urllib.parse import quote

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import BaseRoute, Mount, Route

from anabranch import BranchContext, tool
from anabranch.agents import BranchSelf, Folding
from anabranch.chat import make_chat_app, make_plugin
from anabranch.folding import BankMemory, BranchService, FoldingSettings
from anabranch.memory import ReasoningBank, memory_tools
from anabranch.messages import SampleReply, SampleRequest
from anabranch.stores import open_branch_store, open_memory_store, open_stores
from anabranch.testing import MockModel, calls
from examples.pick_card import PickCard
from tests.agents.harness import heard
from tests.chat.web import reserve, serving
from tests.owners.reads import Reads
from tests.owners.users import Answer, Parameter, Use, User
from tests.patience import PATIENCE

USE = re.compile(r"^use (\w+) (\{.*\})$", re.MULTILINE)
PLACE = re.compile(r"\{(\w+)(?::\w+)?\}")
SAID_BY_SERVER = {
    *("date", "server", "content-length", "etag"),
    *("content-security-policy", "x-content-type-options", "x-frame-options", "referrer-policy"),
    *("cross-origin-opener-policy", "cross-origin-resource-policy"),
}
STORED = re.compile("@[0-9a-f]{32}")
"""Marks an id under which the store keeps a thread, which no answer may show."""
SOURCE = "export default async () => ({action: 'decline'});"
MOUNTED = "/chat"
IN_BRANCH = " in a branch"


class Same(Random):
    """Deals the same cards to every user."""

    def sample(self, population: Sequence[Any], k: int, *, counts: Any = None) -> list[Any]:
        return [*population[:k]]

    def choice(self, seq: Any) -> Any:
        return seq[0]


class Gates:
    """Gates at which tools wait until the test opens them; their texts name the user."""

    def __init__(self) -> None:
        self.closed: dict[str, asyncio.Event] = {}

    def open(self) -> None:
        for gate in self.closed.values():
            gate.set()

    def tool(self) -> Any:
        @tool
        async def hold(ctx: BranchContext, place: str) -> str:
            for word, gate in self.closed.items():
                if word in place:
                    await gate.wait()
            return f"Opened: {place}"

        return hold


def decide(request: SampleRequest) -> SampleReply | str:
    """Use the tools that a message names; in a branch, return the branch's task."""
    said = heard(request)
    uses = [(name, json.loads(given)) for name, given in USE.findall(said)]
    if uses:
        return calls(*((f"use_{n}", name, given) for n, (name, given) in enumerate(uses)))
    if said.startswith("(branch br_"):
        task = said.split("\n\n")[1]
        return calls(("r", "branch_return", {"message": f"Did {task}", "extract_memory": True}))
    return f"You said {said}." if said else "Done."


async def known(request: Request) -> str | None:
    """Return the principal, as an application's login names it."""
    return request.headers.get("x-user")


@asynccontextmanager
async def chatting(url: str, folder: Path, gates: Gates) -> AsyncGenerator[Served]:
    """Serve an application with all features, mounted in another application."""
    calls_store, trees = open_stores(url)
    memories = open_memory_store(trees)

    bank = ReasoningBank(memories)

    module = folder / "cards.mjs"
    module.write_text(SOURCE, encoding="utf-8")
    settings = FoldingSettings(max_concurrent_per_instance=10_000)
    branches = BranchService(open_branch_store(trees), settings, memory=BankMemory(bank))
    tools = [
        make_plugin(PickCard(Same())).on_page("card", module).build(),
        reserve,
        gates.tool(),
        BranchSelf(),
        Folding(branches),
        *memory_tools(bank),
    ]
    chat = make_chat_app(
        trees, MockModel(decide), tools, calls=calls_store, authenticate=known, memory=bank
    )
    outer = Starlette(routes=[Mount(MOUNTED, chat)], lifespan=chat.router.lifespan_context)
    async with (
        serving(outer) as address,
        httpx2.AsyncClient(base_url=address, timeout=PATIENCE) as client,
    ):
        yield Served(outer, client)
    await trees.close()


class Served:
    """A served application, and a client for it."""

    def __init__(self, app: Starlette, client: httpx2.AsyncClient) -> None:
        self.app = app
        self.client = client


def routes_of(routes: Iterable[BaseRoute], prefix: str = "") -> dict[str, Route]:
    """Return each route and method of an application and of the applications mounted in it."""
    found: dict[str, Route] = {}
    for each in routes:
        if isinstance(each, Route):
            for method in sorted((each.methods or set()) - {"HEAD"}):
                found[f"{method} {prefix}{each.path}"] = each
            continue
        assert isinstance(each, Mount), f"{each!r} is neither a Route nor a Mount: drive it, too"
        found |= routes_of(each.routes, prefix + each.path)
    return found


class WebSurface:
    def __init__(self, served: Served, reads: Reads) -> None:
        self._client = served.client
        self._reads = reads
        self.app = served.app

    @property
    def _routes(self) -> dict[str, Route]:
        return routes_of(self.app.routes)

    def operations(self) -> Mapping[str, Sequence[Parameter]]:
        """Return the routes, with the parameters that they are known to read."""
        return {name: self._parameters(route) for name, route in self._routes.items()}

    def _parameters(self, route: Route) -> list[Parameter]:
        path = [("path", name) for name in route.param_convertors]
        return [*path, *self._reads.of(route.endpoint)]

    def sample(self, user: User, operation: str) -> dict[str, Any]:
        """Return ids of the user for the path, by the word before them; no query, and no body."""
        own = dict(_in_path(user.uses))
        _, path = operation.split(" ", 1)
        return {"path": {name: own.get(before, "none") for before, name in _places(path)}}

    def unread(self) -> list[str]:
        """Return the routes that read a body in a way that ``Reads`` does not record."""
        reads = self._reads
        return [
            name
            for name, route in self._routes.items()
            if route.endpoint in reads.bodies and not reads.models[route.endpoint]
        ]

    async def do(self, user: User, operation: str, given: dict[str, Any]) -> Answer:
        """Send a request. The answer of an endless stream is its first events."""
        method, path = operation.split(" ", 1)
        places = given.get("path", {})
        sent: dict[str, Any] = {"params": given.get("query")}
        if "body" in given:
            sent["json"] = given["body"]
        headers = {"X-User": user.name or "", **given.get("headers", {})}
        place = PLACE.sub(lambda each: quote(str(places.get(each[1], "none")), safe=""), path)
        async with self._client.stream(method, place, headers=headers, **sent) as response:
            text, ends = "", method != "GET"
            async for chunk in response.aiter_text():
                text += chunk
                if (
                    not ends
                    and "\n\n" in text
                    and "event-stream" in response.headers["content-type"]
                ):
                    break
            shown = {k: v for k, v in response.headers.items() if k not in SAID_BY_SERVER}
        assert not STORED.search(text + json.dumps(shown)), f"{operation} shows a stored id: {text}"
        return Answer(response.is_success, text, f"{response.status_code} {json.dumps(shown)}")


def _places(path: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a path, each with the word before it."""
    for each in PLACE.finditer(path):
        yield path[: each.start()], each[1]


def _in_path(uses: Iterable[Use]) -> Iterator[tuple[str, str]]:
    """Yield the arguments for parameters of paths, each with the word before it."""
    for each in uses:
        if each.answer.is_done:
            for before, name in _places(each.operation.split(" ", 1)[1]):
                yield before, str(each.given["path"][name])


class ToolSurface:
    """The tools of the application's agent, as ``GET /tools`` lists them.

    Each tool is used in a new thread, and in a branch of another thread.
    """

    def __init__(self, web: WebSurface, tools: Sequence[Mapping[str, Any]]) -> None:
        self._web = web
        self._tools = tools

    def operations(self) -> Mapping[str, Sequence[Parameter]]:
        """Return the tools, with their parameters that take texts."""
        known = {str(each["name"]): texts_of(each["input_schema"]) for each in self._tools}
        return {**known, **{f"{name}{IN_BRANCH}": known[name] for name in known}}

    def sample(self, user: User, operation: str) -> dict[str, Any]:
        name = operation.removesuffix(IN_BRANCH)
        [schema] = [each["input_schema"] for each in self._tools if each["name"] == name]
        return sample_of(schema, user)

    async def do(self, user: User, operation: str, given: dict[str, Any]) -> Answer:
        """Let the model use a tool; the answer is the thread as the page receives it."""
        thread = user.fresh("thread")
        text = f"use {operation.removesuffix(IN_BRANCH)} {json.dumps(given)}"
        if operation.endswith(IN_BRANCH):
            text = f"use branch_create {json.dumps({'description': 'Do it', 'prompt': text})}"
        body = said(thread, user.fresh("run"), text)
        await self._web.do(user, f"POST {MOUNTED}/agui", {"body": body})
        seen = await self._web.do(
            user, f"GET {MOUNTED}/threads/{{id}}/tree", {"path": {"id": thread}}
        )
        return Answer(seen.is_done and '"is_error":true' not in seen.text, seen.text)


def texts_of(schema: Mapping[str, Any]) -> list[Parameter]:
    """Return the parameters of a JSON Schema that take texts or lists of texts."""
    found: list[Parameter] = []
    for name, about in cast("dict[str, Any]", schema.get("properties", {})).items():
        kinds = [about, *about.get("anyOf", ())]
        if any(each.get("type") == "string" and "enum" not in each for each in kinds):
            found.append((name,))
    return found


def sample_of(schema: Mapping[str, Any], user: User) -> dict[str, Any]:
    """Return arguments that fit a JSON Schema: for each required field, an earlier value or a first one."""
    given = {name: value for each in user.uses for name, value in each.given.items()}
    text = user.text("row")
    types = {"string": text, "integer": 1, "number": 1, "boolean": True, "array": [text]}
    return {
        name: given.get(name, about.get("enum", [types.get(about.get("type"))])[0])
        for name, about in schema.get("properties", {}).items()
        if name in schema.get("required", ())
    }


def said(thread: str, run: str, content: str | list[Any], **more: Any) -> dict[str, Any]:
    """Return the body of a run that starts with a message."""
    message = {"id": f"m-{run}", "role": "user", "content": content}
    return {**body_of(thread, run), "messages": [message], **more}


def body_of(thread: str, run: str) -> dict[str, Any]:
    empty: dict[str, Any] = {"state": {}, "messages": [], "tools": [], "context": []}
    return {"threadId": thread, "runId": run, **empty, "forwardedProps": {}}
