"""The search for runs whose process has died: one of the processes that look has each called for again."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch._durable.processes import process_of
from anabranch._durable.run_events import RunEvents
from anabranch.chat._web.open_run import OpenRun
from anabranch.chat._web.thread_lease import SECONDS, WAITS

APART = 60.0
"""Seconds by which the clocks of two processes may differ."""


class Revival:
    """Finds runs whose process has died, although the clocks of processes may differ.

    The store says which processes are dead, where it can tell. Of others it is known by their
    leases. A lease that is over by the clock here may be valid by its owner's. So it counts as over
    only when nothing has renewed it for as long as it lasts, since its owner stores nothing then;
    it is looked at early enough that this costs no time where clocks agree.

    Args:
        events: has the leases.
    """

    def __init__(self, events: RunEvents) -> None:
        self._events = events
        self._seen: dict[tuple[str, str, float], float] = {}

    async def revive(self, now: float, limit: int) -> Sequence[tuple[str, OpenRun]]:
        """Have runs wait for a worker whose process has died; return them, each with its thread.

        Runs that have waited for long are among them. Of several processes, one has each.

        Raises:
            StoreError: the store failed.
        """
        found: list[tuple[str, OpenRun]] = []
        before, self._seen = self._seen, {}
        leases = await self._events.overdue(now + SECONDS, limit)
        at_work = {process_of(owner) for _, owner, _ in leases} - {""}
        dead = await self._events.processes.dead(at_work)
        for held in leases:
            thread_id, owner, until = held
            run = OpenRun.of(owner)
            may_be_valid = until > now or (run.worker and until > now - APART)
            if may_be_valid and process_of(owner) not in dead:
                first = self._seen[held] = before.get(held, now)
                if until > now or now - first < SECONDS:
                    continue
            if await self._events.take_over(thread_id, owner, run.next.name, until, now + WAITS):
                found.append((thread_id, run.next))
        return found
