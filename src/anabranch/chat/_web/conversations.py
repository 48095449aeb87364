"""The conversations of a web application: finds, creates, runs and tends its threads."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, NoReturn

from anabranch._aio import Clock, cancel_and_wait, pause
from anabranch._asking import Capabilities
from anabranch._budget import Limits
from anabranch._durable import CallStore, Durability
from anabranch.agents import (
    Addition,
    Agent,
    AgentTool,
    CalledTool,
    Event,
    Model,
    ToolSource,
    TurnLimits,
    end_calls,
    offered,
    store_nodes,
)
from anabranch.chat._plugins.plugin import Plugin
from anabranch.chat._plugins.plugin_request import PageModule
from anabranch.chat._web.conversation import RUNS, Conversation
from anabranch.chat._web.live_turn import current_turn
from anabranch.chat._web.log_writer import LogWriter
from anabranch.chat._web.open_work import Backlog
from anabranch.chat._web.pending_questions import Questions
from anabranch.chat._web.thread_log import stored_ids
from anabranch.chat._web.upkeep import DueWork, Upkeep
from anabranch.engines import Advance, Engine, InProcessEngine, Wake
from anabranch.errors import StoreError
from anabranch.stores import is_lasting, open_run_events
from anabranch.tool import Tool, require_list
from anabranch.tree import Thread, TreeStore

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

CONCURRENCY = 1_000
"""The most runs that a process works on at the same time."""

IDLE_HELD = 1_000
"""The most idle threads that a process holds in memory."""


class Conversations:
    """All conversations of one application, with the options of :func:`make_chat_app`.

    The end of :meth:`running` sets ``stopping``, which is ``None`` before the start.
    """

    def __init__(  # noqa: PLR0913 - the options of an application, by keyword
        self,
        store: TreeStore,
        model: Model,
        tools: Iterable[Tool[Any] | AgentTool | ToolSource | Plugin[Any]] = (),
        *,
        calls: CallStore | Durability | None = None,
        limits: TurnLimits | None = None,
        tool_limits: Limits | None = None,
        capabilities: Capabilities | None = None,
        engine: Engine | None = None,
        per_principal: int | None = None,
        max_backlog: int | None = None,
        now: Callable[[], float] = time.monotonic,
        clock: Clock | None = None,
        code_version: str | None = None,
    ) -> None:
        self._engine = engine or InProcessEngine(clock)
        self.stopping: asyncio.Event | None = None
        self._works_here: bool = engine is None
        self._is_tended = engine is not None
        self._worker: asyncio.Task[None] | None = None
        self._events = open_run_events(store)
        self._events.per_share = per_principal
        given = require_list("make_chat_app()", "a list of tools", tools)
        plugins = [each for each in given if isinstance(each, Plugin)]
        own = [each for each in given if not isinstance(each, Plugin)]
        self.agent: Agent = Agent(
            store,
            model,
            tools=[*own, *(tool for plugin in plugins for tool in plugin.server.tools)],
            capabilities=capabilities or offered(Capabilities(), model),
            limits=limits,
            tool_limits=tool_limits,
            listener=_report,
            clock=clock,
            calls=calls,
            code_version=code_version,
        )
        self.questions: Questions = Questions(
            self.agent.dependencies,
            self._called_tools,
            {plugin.mcp.name: plugin.server for plugin in plugins},
        )
        self.modules: dict[str, PageModule] = {
            each.name: each for plugin in plugins for each in plugin.server.modules.values()
        }
        dependencies = self.agent.dependencies = replace(self.agent.dependencies, writer=_write)
        self._writer = LogWriter(self._events, dependencies.clock)
        self.due: DueWork = DueWork(self._events, dependencies.clock, dependencies.version)
        self._threads: dict[str, Conversation] = {}
        self.backlog: Backlog = Backlog(self._events, max_backlog, self._untaken, now)
        self.upkeep: Upkeep = Upkeep(self.agent, self._events, self.backlog)

    def _called_tools(self) -> dict[str, Tool[Any]]:
        tools = self.agent.tools.values()
        return {each.name: each.tool for each in tools if isinstance(each, CalledTool)}

    async def find(self, thread_id: str, principal: str | None) -> Conversation | None:
        for name in stored_ids(thread_id, principal):
            thread = await self.agent.store.thread(name)
            if thread is not None and thread.owner == principal:
                return self._in(thread)
        return None

    async def begin(self, thread: Thread) -> Conversation | None:
        """Create a thread; ``None`` if another process creates the same thread now."""
        for name in stored_ids(thread.id, thread.owner):
            named = replace(thread, id=name)
            try:
                await self.agent.store.create_thread(named)
            except StoreError:
                stored = await self.agent.store.thread(name)
                if stored is None:
                    raise
                if stored.owner == thread.owner:
                    return None
            else:
                return self._in(named)
        return None

    def _in(self, thread: Thread) -> Conversation:
        self._work_untended()
        found = self._threads.pop(thread.id, None)
        if found is None:
            self._make_room()
            found = Conversation(
                self.agent,
                self.questions,
                thread,
                self._writer,
                self._engine,
                works_here=self._works_here and self._events.per_share is None,
            )
        self._threads[thread.id] = found  # the latest use comes last
        return found

    def _work_untended(self) -> None:
        """Start a worker for an application without a lifespan, such as a mounted one."""
        if not self._is_tended and (self._worker is None or self._worker.done()):
            self._worker = asyncio.create_task(self._work(CONCURRENCY))

    def _make_room(self) -> None:
        if len(self._threads) >= IDLE_HELD:
            idle = [name for name, each in self._threads.items() if each.is_idle]
            for name in idle[: len(idle) // 2 + 1]:
                del self._threads[name]

    def _untaken(self) -> int:
        return sum(each.is_untaken for each in self._threads.values())

    async def advance(self, wake: Wake) -> None:
        thread_id = wake.call
        conversation = self._threads.get(thread_id)
        if conversation is None:
            thread = await self.agent.store.thread(thread_id)
            if thread is None:
                logger.warning(
                    "ignored a run of %r, which is not in the store: the conversation was"
                    " deleted, or another application uses the same engine",
                    thread_id,
                )
                return
            conversation = self._in(thread)
        await conversation.advance(wake)

    @asynccontextmanager
    async def running(self, concurrency: int | None) -> AsyncGenerator[None]:
        """In the block, work on up to ``concurrency`` runs at a time; ``None`` works on none.

        Unfinished runs continue in other processes or after a restart. If the calls are in this
        process's memory, the end instead stops the runs and undoes the effects of open calls.
        """
        self._is_tended = True
        self.stopping = stopping = asyncio.Event()
        self._works_here = self._works_here and concurrency is not None
        ends_here = self._works_here and not is_lasting(self.agent.dependencies.calls.store)
        work = () if concurrency is None else (self._work(concurrency),)
        tasks = [asyncio.ensure_future(each) for each in (*work, *self.upkeep.jobs())]
        try:
            yield
        finally:
            stopping.set()
            if not ends_here:
                self.agent.suspend()
            await cancel_and_wait(tasks)
            if ends_here:
                await self._end_calls()
            await self.close()

    async def _work(self, concurrency: int) -> None:
        slots = asyncio.Semaphore(concurrency)

        async def advance(wake: Wake) -> None:
            async with slots:
                await self.advance(wake)

        async with asyncio.TaskGroup() as group:
            group.create_task(self._work_for_engine(concurrency, advance))
            group.create_task(self.due.work(slots, self.advance))

    async def _work_for_engine(self, concurrency: int, advance: Advance) -> NoReturn:
        version = self.agent.dependencies.version
        while True:
            try:
                await self._engine.work({RUNS: version}, advance, concurrency)
            except StoreError as error:
                logger.warning("the engine gives this process no runs: %s; trying again", error)
            await pause(self.agent.dependencies.clock, 2.0)

    async def _end_calls(self) -> None:
        try:
            left = await end_calls(self.agent.dependencies, self._called_tools())
        except StoreError as error:
            logger.warning("could not undo the effects of open calls: %s", error)
            return
        for record in left:
            logger.warning(
                "could not undo the effects of call %r of the tool %r, and its record ends with this"
                " process",
                record.call_id,
                record.tool,
            )

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(
                5.0
            ):  # the end of the application must not wait for the store
                for conversation in self._threads.values():
                    await conversation.close()
        await self._events.close()


# One agent serves all threads, so the context of the running task tells the turn of an event.
async def _write(store: TreeStore, added: Addition) -> None:
    turn = current_turn.get(None)
    await (store_nodes(store, added) if turn is None else turn.write(store, added))


async def _report(event: Event) -> None:
    turn = current_turn.get(None)
    if turn is not None:
        await turn.on_event(event)
