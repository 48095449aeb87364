"""The web application of the chat: a page, a run endpoint of AG-UI, and the routes beside it.

It can be served by itself (``anabranch web``) or mounted in another ASGI application.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware

from anabranch._aio import Clock
from anabranch._asking import Capabilities
from anabranch._budget import Limits, Shares
from anabranch._durable.job import Durability
from anabranch._durable.store import CallStore
from anabranch._health import Health, Watched
from anabranch.agents import AgentTool, Model, ToolSource, TurnLimits
from anabranch.agents._agent_dependencies import require_parts
from anabranch.chat._plugins.plugin import Plugin
from anabranch.chat._web.access import LOOPBACK, Access, Authenticate
from anabranch.chat._web.agui_route import agui_route
from anabranch.chat._web.calls_room import CallsRoom, RecordedCalls, rooms_route
from anabranch.chat._web.conversations import CONCURRENCY, Conversations
from anabranch.chat._web.memory_room import MemoryRoom
from anabranch.chat._web.page_files import page_routes
from anabranch.chat._web.rate_limits import RateLimits
from anabranch.chat._web.routes import ERRORS, Routes
from anabranch.engines import Engine
from anabranch.memory import Banks
from anabranch.tool import Tool
from anabranch.tree import TreeStore

STREAMS = 100
"""Streams of events that a principal may have open by default; a page has one."""


def make_chat_app(  # noqa: PLR0913 - the options of an application, by keyword
    store: TreeStore,
    model: Model,
    tools: Iterable[Tool[Any] | AgentTool | ToolSource | Plugin[Any]] = (),
    *,
    calls: CallStore | Durability | None = None,
    recorded_calls: RecordedCalls | None = None,
    memory: Banks | None = None,
    limits: TurnLimits | None = None,
    tool_limits: Limits | None = None,
    capabilities: Capabilities | None = None,
    token: str | None = None,
    authenticate: Authenticate | None = None,
    hosts: Iterable[str] = LOOPBACK,
    rates: RateLimits | None = None,
    max_streams: int | None = None,
    now: Callable[[], float] = time.monotonic,
    clock: Clock | None = None,
    engine: Engine | None = None,
    concurrency: int | None = CONCURRENCY,
    per_principal: int | None = None,
    max_backlog: int | None = None,
    closes_store: bool = False,
    code_version: str | None = None,
) -> Starlette:
    """Return the web application.

    Args:
        store: stores the conversations, and what happens in them: a page that comes back, or is
            connected to another process with the same store, gets what it has missed. Beside a
            store that is not of :mod:`anabranch.stores`, events are in memory.
        model: replies.
        tools: what the model, and the person, may call; a plugin stands for its tool.
        calls: stores the calls of tools, so that their effects happen once whatever dies; by
            default, as for :class:`~anabranch.agents.Agent`.
        recorded_calls: what the calls room of the page shows, to everyone who reaches the
            application, of all calls in the store of ``calls``, other callers' among them: an
            ``outline`` without values, or ``values`` as well. Without it there is no such room.
        memory: what the memory room of the page lists, searches and forgets: the memories of all
            callers, of which each principal sees their own. Without it there is no such room.
        limits: of each turn.
        tool_limits: of each call of a tool, in addition to the tool's own.
        capabilities: what tools may ask for; by default, everything that the model offers. Tools of
            plugins have the plugin's own rules besides.
        token: what every request must present, as ``Authorization: Bearer …``, or the page once as
            ``?token=…``. Without it, anyone who reaches the application may use it.
        authenticate: names the principal who makes a request, or returns ``None`` to refuse it, or
            raises an ``HTTPException`` of Starlette to answer it. A thread is its principal's who
            has begun it, and exists for no one else.
        hosts: the names by which it may be reached, without port; by default, those of this
            machine.
        rates: how much a principal, or an address without one, may do in a minute; by default, as
            much as they like.
        max_streams: how many streams of events a principal, or an address without one, may have open
            at the same time in this process; one more is refused. By default, 100 for a principal, and
            any number where callers are not distinguished.
        now: seconds that never go back, for the rates and the backlog.
        clock: the time; by default, the system's.
        engine: calls a worker for each run, which it takes to its end or to its next questions, and
            has one of the processes that share the store expire calls and delete old events; by
            default, each process is its own worker.
        concurrency: how many runs this process works on at the same time; ``None`` leaves them to
            other processes with the same engine, such as ``anabranch worker``.
        per_principal: on how many runs of one principal all processes with the same engine work at
            the same time; all of them should agree on it. Where callers are not distinguished, their
            runs are those of one. By default, there is no such limit: then a process that is its own
            worker takes from all in turn, and DBOS the runs in the order in which they came.
        max_backlog: how many runs may wait for a worker; a message beyond them is refused with the
            time to come back, and nothing of it is stored. Answers are never refused, since they end
            what is open. By default, any number may wait.
        closes_store: whether the store is closed when the application ends.
        code_version: the version of the tools' code. A call is continued by the code that has begun
            it, or by code that takes the same way; a run with another call waits for a process of
            its version. By default, a digest of the files in which the tools are defined.

    Raises:
        ValueError: both ``token`` and ``authenticate`` are given, or ``recorded_calls`` with the
            latter; or a number is not positive, or ``code_version`` cannot be used.
        TypeError: ``store``, ``model``, ``capabilities`` or a tool is of another kind.
    """
    require_parts("make_chat_app()", store, model, capabilities)
    if token is not None and authenticate is not None:
        raise ValueError("Give token= or authenticate=, not both.")
    if recorded_calls is not None and authenticate is not None:
        raise ValueError(
            "recorded_calls= shows everyone the calls of all: leave it out with authenticate=."
        )
    for name, most in (("per_principal", per_principal), ("max_streams", max_streams)):
        if most is not None and most < 1:
            raise ValueError(f"{name} must be at least 1, not {most}.")
    if max_streams is None and authenticate is not None:
        max_streams = STREAMS
    conversations = Conversations(
        store,
        model,
        tools,
        calls=calls,
        limits=limits,
        tool_limits=tool_limits,
        capabilities=capabilities,
        engine=engine,
        max_backlog=max_backlog,
        now=now,
        clock=clock,
        code_version=code_version,
    )
    rooms: dict[str, CallsRoom | MemoryRoom] = {}
    if recorded_calls is not None:
        policy = conversations.agent.dependencies.calls
        rooms["calls"] = CallsRoom(conversations, policy, recorded_calls)
    if memory is not None:
        rooms["memory"] = MemoryRoom(memory)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        del app
        try:
            async with conversations.running(concurrency, per_principal):
                yield
        finally:
            if closes_store:
                await store.close()

    app = Starlette(
        routes=[
            agui_route(conversations),
            *Routes(conversations).routes,
            *(route for room in rooms.values() for route in room.routes),
            rooms_route(),
            *page_routes(),
        ],
        middleware=[
            Middleware(Watched, health=_health(store, conversations)),
            Middleware(
                Access,
                token=token,
                authenticate=authenticate,
                hosts=hosts,
                rates=rates,
                streams=Shares(max_streams),
                now=now,
            ),
        ],
        exception_handlers=ERRORS,
        lifespan=lifespan,
    )
    app.state.rooms = list(rooms)
    return app


def _health(store: TreeStore, conversations: Conversations) -> Health:
    calls = conversations.agent.dependencies.calls.store
    return Health(partial(store.thread, ""), partial(calls.find, ""))
