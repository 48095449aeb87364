"""A branch that this process works on, while others may work on other branches of the same run.

It reports to the log of the thread, as the run does, and ends with it. It has a lease of its own, so one
process at a time works on it; the events that it leaves open are ended by the next one that does.
"""

from __future__ import annotations

import asyncio

from anabranch.agents import Event
from anabranch.chat._web.event_mapping import EventMapping
from anabranch.chat._web.live_turn import LiveTurn
from anabranch.chat._web.open_run import OpenRun
from anabranch.chat._web.run_input import ends_of_all_open
from anabranch.chat._web.thread_lease import STOP, ThreadLease
from anabranch.chat._web.thread_log import RUN_ENDS, ThreadLog
from anabranch.tree import Node


class LiveBranch(LiveTurn):
    """The branch that begins with ``start``.

    Args:
        log: where it reports.
        right: allows one process at a time.
        start: its first node.

    Attributes:
        is_over: whether the run has ended, or is asked to stop.
    """

    def __init__(self, log: ThreadLog, right: ThreadLease, start: Node) -> None:
        super().__init__(log, right, EventMapping(start))
        self.is_over = False
        self._start = start
        self._is_silent = False

    async def follow(self, run_id: str) -> bool:
        """Whether the run goes on; if so, end what a process that has died left open of the branch.

        From then on, the work is cancelled when the run ends, or is asked to stop.
        """
        begun = await self._log.begun(run_id)
        events = [] if begun is None else await self._log.read(begun)
        if begun is None or any(event.startswith((STOP, *RUN_ENDS)) for event in events):
            self.is_over = self._is_silent = True
            return False
        self._after = begun
        self._stopping = asyncio.create_task(self._stop_when_asked(begun))
        self._log.add(ends_of_all_open(events, self._start.id), lease=self._lease)
        self._mapping.go_on_after(events)
        return True

    async def _stop_when_asked(self, after: int) -> None:
        self._is_silent, self.is_over = await self._right.ended(after), True
        if self.task is not None:
            self.task.cancel()

    async def on_event(self, event: Event) -> None:
        """Report an event of the branch; nothing follows the end of the run."""
        if not self._is_silent:
            await super().on_event(event)

    async def leave(self, *, version: str = "", until: float = 0.0) -> OpenRun | None:
        """Release the branch: it has ended, or has come as far as it can.

        With a ``version`` or ``until``, it waits for that; it is returned as it waits.
        """
        if not self._is_silent and not self._is_lost:
            self._log.add(self._mapping.end(suspended=True), lease=self._lease)
        if version or until:
            return await self.hand_over(is_called=True, version=version, until=until)
        await self._log.flush()
        await self.drop()
        return None
