"""The periodic jobs for all conversations of a store, which one of the store's processes does.

The jobs find work without a worker, and call workers; they do none of the work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterator, Sequence
from contextlib import contextmanager

from anabranch._durable import RunEvents, TurnRecord, TurnState
from anabranch._telemetry import report_backlog
from anabranch.agents import Agent
from anabranch.chat._web.conversation import LOOK, RUNS
from anabranch.chat._web.open_work import Backlog
from anabranch.chat._web.thread_lease import SECONDS, WAITS
from anabranch.engines import Engine, Wake, run_job
from anabranch.errors import StoreError

APART = 60.0
"""Seconds by which the clocks of two processes may differ."""


class Revival:
    """Finds runs whose process died, although the clocks of processes may differ.

    The store names dead processes if it can tell. For other processes, their leases decide. A lease
    that is over by this clock may be valid by its owner's clock. So a lease counts as over only after
    nothing renewed it for its whole duration. By then, the lease's owner stores nothing. The look
    starts early enough to lose no time where clocks agree.

    Args:
        events: has the leases.
    """

    def __init__(self, events: RunEvents) -> None:
        self._events = events
        self._seen: dict[tuple[str, TurnRecord], float] = {}

    async def revive(self, now: float, limit: int) -> Sequence[tuple[str, TurnRecord]]:
        """Let runs of dead processes wait for a worker; return them, each with its thread.

        The result includes runs that have waited long. Of several processes, one gets each run.

        Raises:
            StoreError: if the store fails.
        """
        found: list[tuple[str, TurnRecord]] = []
        before, self._seen = self._seen, {}
        turns = await self._events.overdue(now + SECONDS, limit)
        at_work = {turn.process for _, turn in turns} - {""}
        dead = await self._events.processes.dead(at_work)
        for held in turns:
            thread_id, turn = held
            is_running = turn.state is TurnState.RUNNING
            may_be_valid = turn.due > now or (is_running and turn.due > now - APART)
            if may_be_valid and turn.process not in dead:
                first = self._seen[held] = before.get(held, now)
                if turn.due > now or now - first < SECONDS:
                    continue
            called = turn.called(now + WAITS)
            if await self._events.move(thread_id, turn, called, now=turn.due):
                found.append((thread_id, called))
        return found


RETAINED = 7 * 86_400.0
"""Seconds after the last event of a thread for which its events stay stored."""

PRUNE_EVERY, PRUNED_AT_ONCE = 600.0, 10_000
"""Seconds from one pruning of old events to the next, and the number that each step deletes."""

REVIVE_EVERY, REVIVED_AT_ONCE = 0.5, 1_000
"""Seconds from one look for runs of dead processes to the next, and the most that a look finds."""

ANY_TIME = 0.0
"""The time of a wake that may come immediately; the same time names the same wake."""

REPORT_EVERY, REPORTED = 30.0, 20_000
"""Seconds from one report of the backlog to the next, and the most runs that it counts."""

RESUMED = 1_000
"""The most threads, the latest first, whose cut off turns continue without a request."""


class Upkeep:
    """The periodic jobs of an application.

    Args:
        agent: leads the conversations.
        events: stores each run with its worker.
        engine: gives each job to one of all processes, and calls workers.
        backlog: counts the waiting runs.
    """

    def __init__(self, agent: Agent, events: RunEvents, engine: Engine, backlog: Backlog) -> None:
        self._agent = agent
        self._clock = agent.dependencies.clock
        self._events = events
        self._engine = engine
        self._backlog = backlog
        self._revival = Revival(events)

    def jobs(self) -> Iterator[Awaitable[object]]:
        """Yield an awaitable for each job, which runs until it is cancelled."""
        yield self._engine.every("old events", PRUNE_EVERY, self.prune)
        yield self._engine.every("runs of dead processes", REVIVE_EVERY, self.call_workers)
        yield self._engine.every("the backlog", REPORT_EVERY, self.report_backlog)
        yield from self._agent.tools.tended(self._engine)
        yield self._agent.expire_calls(self._engine)
        yield run_job("tools that were cut off", self.resume)

    async def prune(self) -> None:
        """Delete old events.

        Raises:
            StoreError: if the store fails.
        """
        now = self._clock.now()
        while await self._events.prune(now - RETAINED, PRUNED_AT_ONCE):
            pass

    async def call_workers(self) -> None:
        """Call workers for runs that waited long or whose process died, and for looks that are due.

        Raises:
            StoreError: if the store fails, or if the engine fails for some runs. A later look finds
                those again.
        """
        now, failed = self._clock.now(), list[StoreError]()
        runs = await self._revival.revive(now, REVIVED_AT_ONCE)
        called = [(call, run.wake, run.version) for call, run in runs]
        looks = await self._events.looks(now, now + WAITS, REVIVED_AT_ONCE)
        for call, name, version in (*called, *((call, LOOK, "") for call in looks)):
            # A version may have no worker for long, so each look gives the same wake.
            at = ANY_TIME if version else now
            with _added_to(failed):
                thread = await self._agent.store.thread(call)
                share = "" if thread is None else thread.owner or ""
                wake = Wake(call, name, RUNS, version, share, not_before=at)
                await self._engine.wake(wake)
        _raise_if_any(failed)

    async def report_backlog(self) -> None:
        """Report the number of waiting runs and of runs in progress, in all processes.

        Raises:
            StoreError: if the store fails.
        """
        report_backlog(*await self._backlog.counted(REPORTED))

    async def resume(self) -> None:
        """Call workers for tools that were cut off and belong to no run, such as a terminal's.

        Raises:
            StoreError: if the store fails, or if the engine fails for some tools.
        """
        now, failed = self._clock.now(), list[StoreError]()
        for thread in await self._agent.store.threads(RESUMED):
            if (node := await self._agent.cut_off(thread.id)) is not None:
                wake = Wake(thread.id, node.id, RUNS, share=thread.owner or "", not_before=now)
                with _added_to(failed):
                    await self._engine.wake(wake)
        _raise_if_any(failed)


@contextmanager
def _added_to(failed: list[StoreError]) -> Generator[None]:
    """Add a failure to ``failed``, so that one failure does not end the other items."""
    try:
        yield
    except StoreError as error:
        failed.append(error)


def _raise_if_any(failed: Sequence[StoreError]) -> None:
    if failed:
        raise StoreError(
            f"Could not call a worker for {len(failed)} runs: {failed[-1]}"
        ) from failed[-1]
