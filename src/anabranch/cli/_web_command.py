"""``anabranch web``: the chat as a page, with the tools found in some targets.

Without targets it offers the pick-a-card tool, and without a model, too, one that plays it: so the
first look needs neither a key nor a network.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from cyclopts import Parameter

from anabranch._terminal.console import Console, log_to_stderr
from anabranch._terminal.exits import UsageError
from anabranch.agents import BranchSelf, Folding
from anabranch.agents import Model as AgentModel
from anabranch.chat import Plugin, RateLimits, make_chat_app, make_plugin
from anabranch.chat._web.access import LOOPBACK
from anabranch.chat._web.calls_room import RecordedCalls
from anabranch.cli._answering import open_sampler
from anabranch.cli._chat_tools import (
    ChatTargets,
    ChatTool,
    ServerHeaders,
    connected,
    tools_of,
)
from anabranch.cli._demo_tool import Outcome, PickCard, pick_card
from anabranch.cli._endpoint import Endpoint
from anabranch.cli._folding import Foldable, open_branches
from anabranch.cli._http_access import Access, is_loopback
from anabranch.cli._http_connections import Bounds
from anabranch.cli._http_server import serve_app
from anabranch.cli._memory import Remembering, learning, open_bank
from anabranch.cli._options import WEB_TOKEN, AccessLog, Model, Store, store_url
from anabranch.cli._web_models import DemoModel, WithoutModel
from anabranch.errors import StoreError
from anabranch.memory import memory_tools
from anabranch.models import ModelError, open_model
from anabranch.stores import open_stores

__all__ = ["game", "web_command"]


def web_command(  # noqa: PLR0913 - options
    *targets: ChatTargets,
    host: Annotated[str, Parameter(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="The port to listen on; 0 for any.")] = 8080,
    allowed_host: Annotated[
        tuple[str, ...],
        Parameter(help="A name by which browsers reach it, as behind a proxy. Repeatable."),
    ] = (),
    model: Model = None,
    store: Store = None,
    calls: Annotated[
        RecordedCalls | None,
        Parameter(
            help="Show recorded calls, of all tools and callers in the store: an outline, or the"
            " values as well."
        ),
    ] = None,
    token: Annotated[
        str | None,
        Parameter(
            env_var=WEB_TOKEN,
            help="What every browser and client must present. Other users of this machine may see"
            " the command line: the environment variable is safer.",
        ),
    ] = None,
    header: ServerHeaders = None,
    access_log: AccessLog = False,
    folding: Foldable = False,
    memory: Remembering = False,
) -> None:
    """Run the command."""
    log_to_stderr(logging.WARNING)
    endpoint = Endpoint("http", host, port, access=Access(tuple(allowed_host)))
    _check_token(endpoint, token)
    endpoint.check()
    tools, leads = _tools(targets, header or ()), _model(model, targets)
    url, learner = store_url(store), open_sampler(model) if memory else None
    bank = open_bank(url) if memory or folding else None
    if folding:
        tools.append(Folding(open_branches(url, bank, learns=learner is not None)))
    if memory and bank is not None:
        tools += memory_tools(bank)
    try:
        recorded, tree = open_stores(url)
    except StoreError as error:
        raise UsageError(str(error)) from error
    with endpoint.listen() as listener:
        place = f"[{host}]" if ":" in host else host
        address = f"http://{place}:{listener.getsockname()[1]}/"
        if token:
            address += f"?token={quote(token)}"
        app = make_chat_app(
            tree,
            leads,
            tools,
            calls=recorded,
            recorded_calls=calls,
            memory=(lambda _: bank) if memory and bank is not None else None,
            token=token,
            hosts=[*LOOPBACK, *allowed_host],
            rates=None if is_loopback(host) else RateLimits(),
            closes_store=True,
        )
        serve_app(
            app,
            listener,
            Bounds(endpoint.connections, access_log=access_log),
            on_started=lambda: Console().say(f"The chat is at {address}"),
            around=_around(tools, learning(bank, learner)),
        )


@asynccontextmanager
async def _around(
    tools: Iterable[object], learns: AbstractAsyncContextManager[None]
) -> AsyncGenerator[None]:
    async with connected(tools), learns:
        yield


def _check_token(endpoint: Endpoint, token: str | None) -> None:
    if token is None and not is_loopback(endpoint.host):
        raise UsageError(
            f"Others than this machine reach {endpoint.host}: set a token ({WEB_TOKEN}, or --token)."
        )
    if token is not None and not token.strip():
        raise UsageError("The token is empty. Leave it out, or set one that is hard to guess.")


def _tools(targets: Sequence[str], headers: Sequence[str]) -> list[ChatTool | Plugin[Any]]:
    return tools_of(targets, headers) if targets or headers else [BranchSelf(), game()]


def game() -> Plugin[Outcome]:
    """Return the card game, with cards to click in the page; which of them wins stays here."""
    module = Path(__file__).with_name("pick_card.mjs")
    plugin = make_plugin(pick_card, expose=("params", "handoff.cards"))
    return plugin.on_page(PickCard.card, module).build()


def _model(name: str | None, targets: Sequence[str]) -> AgentModel:
    try:
        if name is not None:
            return open_model(name, cache=True)
    except ModelError as error:
        raise UsageError(str(error)) from error
    return WithoutModel() if targets else DemoModel()
