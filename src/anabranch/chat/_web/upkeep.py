"""The periodic jobs that every process does for all conversations of a store."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator

from anabranch._aio import run_every, run_once
from anabranch._durable import RunEvents
from anabranch._telemetry import report_backlog
from anabranch.agents import Agent
from anabranch.chat._web.open_work import Backlog

RETAINED = 7 * 86_400.0
"""Seconds after the last event of a thread for which its events stay stored."""

PRUNE_EVERY, PRUNED_AT_ONCE = 600.0, 10_000
"""Seconds from one pruning of old events to the next, and the number that each step deletes."""

REPORT_EVERY, REPORTED = 30.0, 20_000
"""Seconds from one report of the backlog to the next, and the most runs that it counts."""


class Upkeep:
    def __init__(self, agent: Agent, events: RunEvents, backlog: Backlog) -> None:
        self._agent = agent
        self._clock = agent.dependencies.clock
        self._events = events
        self._backlog = backlog

    def jobs(self) -> Iterator[Awaitable[object]]:
        yield run_every(self._clock, PRUNE_EVERY, "delete old events", self.prune)
        yield run_every(self._clock, REPORT_EVERY, "report the backlog", self.report_backlog)
        yield from self._agent.tools.tended()
        yield self._agent.expire_calls()
        yield run_once(self._clock, REPORT_EVERY, "continue tools that were cut off", self.resume)

    async def prune(self) -> None:
        now = self._clock.now()
        while await self._events.prune(now - RETAINED, PRUNED_AT_ONCE):
            pass

    async def report_backlog(self) -> None:
        report_backlog(*await self._backlog.counted(REPORTED))

    async def resume(self) -> None:
        """Let workers check threads whose tools did not end, such as a dead terminal's."""
        now = self._clock.now()
        for thread in await self._agent.store.threads(1_000):
            if await self._agent.cut_off(thread.id) is not None:
                await self._events.look(thread.id, now)
