"""The periodic jobs that every process does for all conversations of a store.

The first is the search for runs that need a worker. An engine only calls a worker earlier, so a lost
wake delays a run and loses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import NoReturn

from anabranch._aio import Clock, cancel_and_wait, pause, run_every, run_job, run_once
from anabranch._durable import RunEvents, TurnRecord
from anabranch._telemetry import observe_wake, report_backlog
from anabranch.agents import Agent
from anabranch.chat._web.conversation import LOOK, RUNS
from anabranch.chat._web.open_work import Backlog
from anabranch.chat._web.thread_lease import SECONDS, WAITS
from anabranch.engines import Wake

APART = 60.0
"""Seconds by which the clocks of two processes may differ."""

EVERY, AT_ONCE = 0.5, 100
"""Seconds from one look for due runs to the next, and the most runs that a look claims."""

RUNNING = 1_000
"""The most runs whose processes a look checks."""

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
        """Let workers check threads whose tools did not end, such as a dead terminal's.

        Older threads than the latest 1,000 continue only at a request.
        """
        now = self._clock.now()
        for thread in await self._agent.store.threads(1_000):
            if await self._agent.cut_off(thread.id) is not None:
                await self._events.look(thread.id, now)


class DueWork:
    """Finds the runs that need a worker, and works on them in this process.

    If the store cannot tell which processes are dead, leases decide. Clocks differ, so a lease is
    over only after nothing renewed it for its whole duration. The lease's owner stores nothing by
    then. The look starts early enough to lose no time where clocks agree.
    """

    def __init__(self, events: RunEvents, clock: Clock, version: str = "") -> None:
        self._events = events
        self._clock = clock
        self._version = version
        self._seen: dict[tuple[str, TurnRecord], float] = {}
        self._next_check = 0.0

    async def work(
        self, slots: asyncio.Semaphore, advance: Callable[[Wake], Awaitable[None]]
    ) -> NoReturn:
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                await slots.acquire()
                free = 1
                while free < AT_ONCE and not slots.locked():
                    await slots.acquire()
                    free += 1
                found: list[Wake] = []
                await run_job("find due runs", partial(self._find, free, found))
                for _ in range(free - len(found)):
                    slots.release()
                for wake in found:
                    task = asyncio.create_task(_advance(wake, advance))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    task.add_done_callback(lambda _: slots.release())
                if len(found) < free:
                    await pause(self._clock, EVERY)
        finally:
            await cancel_and_wait(list(tasks))

    async def _find(self, limit: int, found: list[Wake]) -> None:
        found += await self.claim(limit)

    async def claim(self, limit: int = AT_ONCE) -> Sequence[Wake]:
        """Return wakes for runs that need a worker; no two processes get the same run."""
        now = self._clock.now()
        if now >= self._next_check:
            await self._leave_dead(now)
            self._next_check = now + EVERY
        claimed = await self._events.claim(now, now + WAITS, limit, version=self._version)
        return [Wake(thread, LOOK, RUNS, not_before=now) for thread in claimed]

    async def _leave_dead(self, now: float) -> None:
        before, self._seen = self._seen, {}
        turns = await self._events.overdue(now + SECONDS, RUNNING, is_running=True)
        dead = await self._events.processes.dead({turn.process for _, turn in turns} - {""})
        for held in turns:
            thread_id, turn = held
            if turn.due > now - APART and turn.process not in dead:
                first = self._seen[held] = before.get(held, now)
                if turn.due > now or now - first < SECONDS:
                    continue
            await self._events.move(thread_id, turn, turn.called(now), now=turn.due)


async def _advance(wake: Wake, advance: Callable[[Wake], Awaitable[None]]) -> None:
    with observe_wake(wake.call, wake.turn, wake.tool, wake.trace):
        await run_job(f"run {wake.call}", partial(advance, wake))  # after an error, it is due again
