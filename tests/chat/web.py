"""The web application on a port of this machine, and helpers of its tests."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import uvicorn
from ag_ui.core import CustomEvent
from pydantic import BaseModel, Field
from starlette.types import ASGIApp

from anabranch import Accepted, BranchContext, Elicitation, tool
from anabranch.agents import Model
from anabranch.chat import make_chat_app
from anabranch.chat._web.page_files import base
from anabranch.testing import MockModel, calls
from anabranch.tree import TreeStore
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.patience import PATIENCE

on_both_databases = pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
"""Runs a test on Postgres in the gate, too: one for each feature whose statements differ there."""


class Seat(BaseModel):
    row: int = Field(title="Row", ge=1, le=30)
    note: str = Field(default="", title="Note", max_length=20)


SEAT = Elicitation("seat", Seat)


@tool(elicits=[SEAT])
async def reserve(ctx: BranchContext, flight: str = "AB1") -> str:
    await ctx.log("info", f"Looking at {flight}")
    answer = await ctx.elicit(SEAT, "Which seat?", context={"plane": "A320"})
    if not isinstance(answer, Accepted):
        return f"No seat: {answer.action}"
    return f"Row {answer.content.row} on {flight}"


def app_module() -> str:
    return f"/{base()}/app.mjs"


def decide(request: Any) -> Any:
    said = heard(request)
    if said == "reserve":
        return calls(("use_1", "reserve", {"flight": "AB1"}), text="Let me see.")
    return f"You said {said}." if said else "Done."


def model() -> MockModel:
    return MockModel(decide)


@asynccontextmanager
async def browsing(
    *,
    store: TreeStore | None = None,
    tools: Sequence[Any] = (reserve,),
    replies: Model | None = None,
    **options: Any,
) -> AsyncGenerator[httpx2.AsyncClient]:
    """Yield a client of the application, which is stopped afterwards."""
    app = make_chat_app(store or MemoryTrees(), replies or model(), tools, **options)
    async with serving(app) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        yield client


@asynccontextmanager
async def serving(app: ASGIApp, **options: Any) -> AsyncGenerator[str]:
    """Serve ``app`` on a free port, and yield its URL; the options are uvicorn's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        wanted: dict[str, Any] = {"log_config": None, "timeout_graceful_shutdown": 1, **options}
        config = uvicorn.Config(app, **wanted)
        server = uvicorn.Server(config)
        serves = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serves


def message(text: str, *, thread: str = "t1", run: str = "r1", **more: Any) -> dict[str, Any]:
    """Return the body of a run that starts with a message."""
    said = {"id": f"m-{run}", "role": "user", "content": text}
    return {**_body(thread, run), "messages": [said], **more}


def resume(*entries: dict[str, Any], thread: str = "t1", run: str = "r2") -> dict[str, Any]:
    """Return the body of a run that answers interrupts."""
    return {**_body(thread, run), "resume": list(entries)}


def _body(thread: str, run: str) -> dict[str, Any]:
    empty: dict[str, Any] = {"state": {}, "messages": [], "tools": [], "context": []}
    return {"threadId": thread, "runId": run, **empty, "forwardedProps": {}}


async def run(client: httpx2.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = await client.post("/agui", json=body)
    assert response.status_code == 200, response.text
    return events_in(response.text)


def events_in(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines]


def numbers_of(sent: Iterable[str]) -> list[int]:
    """Return the numbers of sent events: an event's id is its number and a mark."""
    ids = [event.partition("\n")[0] for event in sent]
    assert all(each.startswith("id: ") for each in ids), ids
    return [int(each.removeprefix("id: ").partition("-")[0]) for each in ids]


def types_of(events: Iterable[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events if event["type"] != "CUSTOM"]


def named(*names: str) -> list[CustomEvent]:
    return [CustomEvent(name=name, value=None) for name in names]
