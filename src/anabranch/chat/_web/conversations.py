"""The conversations of a web application: the agent, and its threads as they are watched and led.

One agent serves all threads. What it does is reported to the thread in which it happens: a turn is
found by the context of the task in which it runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TypeGuard

from anabranch._asking.host import Capabilities
from anabranch._durable.policy import Durability
from anabranch._durable.store import CallStore
from anabranch._engine.clock import pause
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
from anabranch.chat._bridge.page_module import PageModule
from anabranch.chat._bridge.plugin import Plugin
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.live_turn import current_turn
from anabranch.chat._web.log_writer import LogWriter
from anabranch.chat._web.pending_questions import Questions
from anabranch.chat._web.thread_lease import BusyError
from anabranch.stores import open_run_events
from anabranch.tool import Tool
from anabranch.tree import Thread, TreeStore

__all__ = ["Conversations"]

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

IDLE_HELD = 1_000
"""The most threads in which nothing happens that are held in memory."""

RETAINED = 7 * 86_400.0
"""Seconds after the last event of a thread for which its events are stored."""

PRUNED_AT_ONCE = 10_000
"""How many old events each step of a pruning deletes."""

RESUMED = 1_000
"""The most threads, the latest, in which turns that were cut off go on by themselves."""

RESUME_EVERY = 2.0
"""Seconds until it is tried again where a process that may have died has the right to run."""

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
        capabilities: what tools may ask for; by default, everything that the model offers.
        samples_asked: whether clients answer the tools' samples, instead of the model.

    Attributes:
        agent: leads them.
        questions: reads their questions.
        modules: show questions of plugins in the page, by their names.
    """

    def __init__(
        self,
        store: TreeStore,
        model: Model,
        tools: Iterable[Tool[Any] | AgentTool | ToolSource | Plugin[Any]] = (),
        *,
        calls: CallStore | Durability | None = None,
        limits: TurnLimits | None = None,
        capabilities: Capabilities | None = None,
        samples_asked: bool = False,
    ) -> None:
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
            listener=_report,
            calls=calls,
            samples_asked=samples_asked,
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

    async def find(self, thread_id: str, principal: str | None) -> Conversation | None:
        """Return the conversation in a thread, ``None`` if ``principal`` has no such thread."""
        thread = await self.agent.store.thread(thread_id)
        return None if thread is None else self._of(thread, principal)

    async def begin(self, thread: Thread) -> Conversation | None:
        """Begin a thread, and return its conversation; ``None`` if its id is taken."""
        if await self.agent.store.thread(thread.id) is not None:
            return None
        await self.agent.store.create_thread(thread)
        return self._of(thread, thread.owner)

    def _of(self, thread: Thread, principal: str | None) -> Conversation | None:
        if thread.owner != principal:
            return None
        found = self._threads.pop(thread.id, None)
        if found is None:
            self._make_room()
            found = Conversation(self.agent, self.questions, thread.id, self._writer)
        self._threads[thread.id] = found  # the last used is the last
        return found

    def _make_room(self) -> None:
        if len(self._threads) >= IDLE_HELD:
            idle = [name for name, each in self._threads.items() if each.is_idle]
            for name in idle[: len(idle) // 2 + 1]:
                del self._threads[name]

    async def prune(self) -> None:
        """Delete old events.

        Raises:
            StoreError: the store failed.
        """
        now = self.agent.dependencies.clock.now()
        while await self._events.prune(now - RETAINED, PRUNED_AT_ONCE):
            pass

    async def resume(self) -> None:
        """Go on with turns that were cut off while a tool ran, when this store was last used.

        Without a store of calls, what their tools had done would be done again: then none is.
        """
        if self.agent.dependencies.calls is None:
            return
        clock = self.agent.dependencies.clock
        threads = await self.agent.store.threads(RESUMED)
        while threads:
            threads = [each for each in threads if not await self._has_resumed(each)]
            await pause(clock, RESUME_EVERY)

    async def _has_resumed(self, thread: Thread) -> bool:
        """Go on in a thread; false while another process has the right to run there."""
        if await self.agent.cut_off(thread.id) is None:
            return True
        conversation = await self.find(thread.id, thread.owner)
        try:
            if conversation is not None:
                await conversation.resume()
        except BusyError:  # it may have died; then its lease runs out
            return False
        return True

    async def close(self) -> None:
        """Stop all turns; they go on after a restart."""
        self.agent.suspend()
        for conversation in self._threads.values():
            await conversation.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH):
                for conversation in self._threads.values():
                    await conversation.log.flush()
        await self._events.close()


def _is_called(tool: AgentTool) -> TypeGuard[CalledTool]:
    return isinstance(tool, CalledTool)


async def _report(event: Event) -> None:
    turn = current_turn.get(None)
    if turn is not None:
        await turn.on_event(event)
