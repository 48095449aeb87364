"""The conversations of a web application: the agent, and its threads as they are watched and led.

One agent serves all threads. What it does is reported to the thread in which it happens: a turn is
found by the context of the task in which it runs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, NoReturn, TypeGuard

from anabranch._aio import Clock, cancel_and_wait, pause
from anabranch._asking.host import Capabilities
from anabranch._budget import Limits
from anabranch._durable.job import Durability
from anabranch._durable.store import CallStore
from anabranch.agents import (
    Agent,
    AgentTool,
    CalledTool,
    Event,
    Model,
    ToolSource,
    TurnLimits,
)
from anabranch.agents._agent_dependencies import offered
from anabranch.agents._call_expiry import end_calls
from anabranch.chat._bridge.page_module import PageModule
from anabranch.chat._bridge.plugin import Plugin
from anabranch.chat._web.conversation import RUNS, Conversation
from anabranch.chat._web.live_turn import current_turn
from anabranch.chat._web.log_writer import LogWriter
from anabranch.chat._web.open_work import Backlog
from anabranch.chat._web.pending_questions import Questions
from anabranch.chat._web.thread_ids import stored_ids
from anabranch.chat._web.upkeep import Upkeep
from anabranch.engines import Engine, InProcessEngine, Wake, WorkLimits
from anabranch.errors import StoreError
from anabranch.stores import is_lasting, open_run_events
from anabranch.tool import Tool
from anabranch.tree import Thread, TreeStore

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

CONCURRENCY = 1_000
"""Runs on which a process works at the same time."""

IDLE_HELD = 1_000
"""The most threads in which nothing happens that are held in memory."""

TAKE_AGAIN = 2.0
"""Seconds after which runs are taken again where the engine has failed."""

FLUSH = 5.0
"""Seconds for which the end of the application waits until events are stored."""


class Conversations:
    """All threads of one application.

    Args:
        store: stores them.
        model: replies.
        tools: what the model, and the person, may call; a plugin stands for its tools.
        calls: stores the calls of tools.
        limits: of each turn.
        tool_limits: of each call of a tool, in addition to the tool's own.
        capabilities: what tools may ask for; by default, everything that the model offers.
        engine: calls the workers that work on runs, any of which may be in another process; by
            default, runs are worked on in this one.
        max_backlog: how many runs may wait for a worker when another begins.
        now: seconds that never go back, for the backlog.
        clock: the time; by default, the system's.
        code_version: the version of the tools' code; by default, a digest of it.

    Attributes:
        agent: leads them.
        backlog: counts the runs that begin.
        questions: reads their questions.
        modules: show questions of plugins in the page, by their names.
        upkeep: what is due from time to time.
        stopping: is set when :meth:`running` ends; ``None`` before it has begun.
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
        max_backlog: int | None = None,
        now: Callable[[], float] = time.monotonic,
        clock: Clock | None = None,
        code_version: str | None = None,
    ) -> None:
        self._engine = engine or InProcessEngine(clock)
        self.stopping: asyncio.Event | None = None
        self._works_here: bool = engine is None
        self._is_tended = engine is not None
        self._worker: asyncio.Task[NoReturn] | None = None
        self._events = open_run_events(store)
        given = list(tools)
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
            lambda: {
                each.name: each.tool for each in self.agent.tools.values() if _is_called(each)
            },
            {plugin.mcp.name: plugin.server for plugin in plugins},
        )
        self.modules: dict[str, PageModule] = {
            each.name: each for plugin in plugins for each in plugin.server.modules.values()
        }
        self._writer = LogWriter(self._events, self.agent.dependencies.clock)
        self._threads: dict[str, Conversation] = {}
        self.backlog: Backlog = Backlog(self._events, max_backlog, self._untaken, now)
        self.upkeep: Upkeep = Upkeep(self.agent, self._events, self._engine, self.backlog)

    async def find(self, thread_id: str, principal: str | None) -> Conversation | None:
        """Return the conversation in a thread, ``None`` if ``principal`` has no such thread."""
        for name in stored_ids(thread_id, principal):
            thread = await self.agent.store.thread(name)
            if thread is not None and thread.owner == principal:
                return self._in(thread)
        return None

    async def begin(self, thread: Thread) -> Conversation | None:
        """Begin a thread, and return its conversation; ``None`` if its owner has one of this id."""
        if await self.find(thread.id, thread.owner) is not None:
            return None
        for name in stored_ids(thread.id, thread.owner):
            named = replace(thread, id=name)
            stored = await self.agent.store.thread(name) or await self._created(named)
            if stored is named:
                return self._in(named)
            if stored.owner == thread.owner:  # at the same time, elsewhere
                return None
        return None

    async def _created(self, thread: Thread) -> Thread:
        """Store a thread, and return it; or the one that has been stored under its id meanwhile."""
        try:
            await self.agent.store.create_thread(thread)
        except StoreError:
            if (stored := await self.agent.store.thread(thread.id)) is not None:
                return stored
            raise
        return thread

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
                works_here=self._works_here,
            )
        self._threads[thread.id] = found  # the last used is the last
        return found

    def _work_untended(self) -> None:
        """Work on runs although :meth:`running` was not entered.

        An application that is mounted in another, or called without a server, has no lifespan.
        """
        if not self._is_tended and (self._worker is None or self._worker.done()):
            self._worker = asyncio.create_task(self._work(WorkLimits(CONCURRENCY)))

    def _make_room(self) -> None:
        if len(self._threads) >= IDLE_HELD:
            idle = [name for name, each in self._threads.items() if each.is_idle]
            for name in idle[: len(idle) // 2 + 1]:
                del self._threads[name]

    def _untaken(self) -> int:
        return sum(each.is_untaken for each in self._threads.values())

    async def advance(self, wake: Wake) -> None:
        """Work on the run of a thread, if it waits for a worker."""
        thread_id = wake.call
        conversation = self._threads.get(thread_id)
        if conversation is None:
            thread = await self.agent.store.thread(thread_id)
            if thread is None:
                logger.warning(
                    "a run of %r is left alone, which is not in the store: the conversation was"
                    " deleted, or another application uses the same engine",
                    thread_id,
                )
                return
            conversation = self._in(thread)
        await conversation.advance(wake.turn)

    @asynccontextmanager
    async def running(
        self, concurrency: int | None, per_principal: int | None = None
    ) -> AsyncGenerator[None]:
        """Work on runs, so many at a time, and do what is due from time to time, inside the block.

        Of one principal's runs, all processes work on ``per_principal`` at a time, if it is given.
        Without ``concurrency``, other processes work on the runs. Runs that are in progress at the
        end of the block go on in others, or after a restart. Where calls end with this process,
        since their store is in its memory, runs are stopped, and what open calls have done is undone.
        """
        limits = None if concurrency is None else WorkLimits(concurrency, per_share=per_principal)
        self._is_tended = True
        self.stopping = stopping = asyncio.Event()
        self._works_here = self._works_here and limits is not None
        policy = self.agent.dependencies.calls
        ends_here = self._works_here and policy is not None and not is_lasting(policy.store)
        tasks = [asyncio.ensure_future(each) for each in self._parts(limits)]
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

    def _parts(self, limits: WorkLimits | None) -> Iterator[Awaitable[object]]:
        if limits is not None:
            yield self._work(limits)
        yield from self.upkeep.jobs()

    async def _work(self, limits: WorkLimits) -> NoReturn:
        version = self.agent.dependencies.version
        while True:
            try:
                await self._engine.work({RUNS: version}, self.advance, limits)
            except StoreError as error:
                logger.warning("no runs are taken: %s; trying again", error)
            await pause(self.agent.dependencies.clock, TAKE_AGAIN)

    async def _end_calls(self) -> None:
        tools = {each.name: each.tool for each in self.agent.tools.values() if _is_called(each)}
        try:
            left = await end_calls(self.agent.dependencies, tools)
        except StoreError as error:
            logger.warning("what open calls have done is not undone: %s", error)
            return
        for record in left:
            logger.warning(
                "what call %r of the tool %r has done is not undone, and its record ends with this"
                " process",
                record.call_id,
                record.tool,
            )

    async def close(self) -> None:
        """Have other processes take what was not taken here, and store what was reported."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH):
                for conversation in self._threads.values():
                    await conversation.close()
        await self._events.close()


def _is_called(tool: AgentTool) -> TypeGuard[CalledTool]:
    return isinstance(tool, CalledTool)


async def _report(event: Event) -> None:
    turn = current_turn.get(None)
    if turn is not None:
        await turn.on_event(event)
