"""The chat as a web application: its page, its AG-UI endpoint, and its other routes."""

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
from anabranch._durable import CallStore, Durability
from anabranch._health import Health, Watched
from anabranch.agents import AgentTool, Model, ToolSource, TurnLimits, require_parts
from anabranch.chat._plugins.plugin import Plugin
from anabranch.chat._web.access import LOOPBACK, Access, Authenticate, read_hosts, require_access
from anabranch.chat._web.agui_route import agui_route
from anabranch.chat._web.conversations import CONCURRENCY, Conversations
from anabranch.chat._web.page_files import page_routes
from anabranch.chat._web.rate_limits import RateLimits
from anabranch.chat._web.rooms import CallsRoom, MemoryRoom, RecordedCalls, rooms_route
from anabranch.chat._web.routes import ERRORS, Routes
from anabranch.engines import Engine
from anabranch.memory import Banks
from anabranch.tool import Tool
from anabranch.tree import TreeStore


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
    """Return the web application of a chat, with its page, as a Starlette (ASGI) application.

    Args:
        store: the store of conversations and their events. A page that returns, or connects to
            another process with the same store, gets the events that it missed. A store that is not
            of :mod:`anabranch.stores` keeps the events in memory.
        model: the model that replies.
        tools: the tools that the model and the user may call; pass a plugin in place of its tool.
        calls: the store of the tools' calls, so that effects happen once even if a process dies;
            default as for :class:`~anabranch.agents.Agent`.
        recorded_calls: the detail in which the page shows recorded calls: ``outline`` (no values)
            or ``values``. Every user of the application sees all calls in the store of ``calls``,
            also those of other callers. Without ``recorded_calls``, the page does not list calls.
        memory: the memories that the page lists, searches and deletes. Each principal sees only
            memories of that principal. Without ``memory``, the page does not list memories.
        limits: the limits of each turn.
        tool_limits: limits of each call of a tool, in addition to the tool's own.
        capabilities: the kinds of questions that tools may ask; by default, every kind that the
            model offers. A plugin may restrict its tool further.
        token: the token that clients must send: ``Authorization: Bearer …`` in each request, or
            ``?token=…`` when the page opens. Without a token, every client may use the application.
        authenticate: a function, async or plain, that returns the principal of a request, or
            ``None`` to refuse the request, or raises an ``HTTPException`` of Starlette to answer
            it. Only the principal who started a thread can see the thread.
        hosts: the host names of the application, without port; by default, those of this machine.
        rates: maximum requests and runs per minute of a principal, or of a network address if the
            request has no principal; by default, no limit.
        max_streams: maximum open event streams of a principal, or of a network address, in this
            process; the application refuses further streams. By default, 100 for a principal, and
            no limit if callers are not distinguished.
        now: returns monotonic seconds, for the rates and the backlog.
        clock: the time; by default, the system's.
        engine: the engine that assigns runs to workers. By default, each process works on the runs
            that it receives.
        concurrency: maximum runs on which this process works at the same time; ``None`` leaves the
            runs to other processes with the same engine, such as ``anabranch worker``.
        per_principal: maximum runs of one principal on which all processes with the same store
            work at the same time; give each process the same number. If callers are not
            distinguished, all are one principal. By default, there is no limit: workers take runs in
            the order of their arrival.
        max_backlog: maximum runs that wait for a worker. The application refuses further messages
            with a retry time, and does not store them. The application never refuses answers, since
            answers end open work. By default, no limit.
        closes_store: whether the application closes the store at its end.
        code_version: the version of the tools' code. A call continues only with the version that
            started it, or with code that repeats its recorded steps. Otherwise, the run waits for a
            process of that version. By default, a digest of the files that define the tools.

    Raises:
        ValueError: if ``authenticate`` comes with ``token`` or with ``recorded_calls``, a number is
            not positive, or ``token``, a host or ``code_version`` is invalid.
        TypeError: if ``store``, ``model``, ``capabilities``, ``rates`` or a tool has another type.
    """
    require_parts("make_chat_app()", store, model, capabilities)
    require_access(token, authenticate, rates)
    if recorded_calls is not None and authenticate is not None:
        raise ValueError(
            "recorded_calls= shows every user all calls: leave it out with authenticate=."
        )
    positive = {
        "concurrency": concurrency,
        "per_principal": per_principal,
        "max_streams": max_streams,
    }
    for name, most in positive.items():
        if most is not None and most < 1:
            raise ValueError(f"{name} must be at least 1, not {most}.")
    if max_streams is None and authenticate is not None:
        max_streams = 100
    names = read_hosts(hosts)
    conversations = Conversations(
        store,
        model,
        tools,
        calls=calls,
        limits=limits,
        tool_limits=tool_limits,
        capabilities=capabilities,
        engine=engine,
        per_principal=per_principal,
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
            async with conversations.running(concurrency):
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
                hosts=names,
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
