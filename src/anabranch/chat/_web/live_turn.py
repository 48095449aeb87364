"""A turn that is running in a thread, reported as a run in AG-UI's sense.

A run that waits for a person has ended, with an interrupt for each question; another goes on from there.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from ag_ui.core import (
    PROTOCOL_VERSION,
    BaseEvent,
    Interrupt,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
)

from anabranch._durable.lease import RenewedLease
from anabranch._engine.combine import cancel_and_wait
from anabranch._shielded import run_shielded
from anabranch.agents import Event
from anabranch.chat._web.event_mapping import EventMapping
from anabranch.chat._web.thread_lease import ThreadLease
from anabranch.chat._web.thread_log import ThreadLog

__all__ = ["LiveTurn", "current_turn"]

current_turn: ContextVar[LiveTurn] = ContextVar("current_turn")


class LiveTurn:
    """One turn.

    Args:
        thread_id: its thread.
        log: where it reports.
        right: allows one run at a time.

    Attributes:
        task: runs it.
    """

    def __init__(self, thread_id: str, log: ThreadLog, right: ThreadLease) -> None:
        self.thread_id = thread_id
        self.task: asyncio.Task[None] | None = None
        self._log = log
        self._right = right
        self._mapping = EventMapping()
        self._run_id = ""
        self._lease: RenewedLease | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether one of its runs is in progress."""
        return self._lease is not None

    async def begin_run(self, run_id: str) -> int:
        """Report that a run begins; return after which event.

        A run that has begun before, in whatever process, does not begin again.

        Raises:
            BusyError: another run is in progress in the thread.
            StoreError: the store failed, and the run has not begun.
        """
        lease = await self._right.take(run_id, self._on_lost)
        if lease is None:
            return await self._log.begun(run_id) or 0
        started = RunStartedEvent(
            thread_id=self.thread_id, run_id=run_id, protocol_version=PROTOCOL_VERSION
        )
        try:
            after = await self._log.begin(run_id, started)
        except BaseException:
            async with lease:
                raise
        self._run_id, self._lease = run_id, lease
        self._stopping = asyncio.create_task(self._stop_when_asked(after))
        return after

    async def _stop_when_asked(self, after: int) -> None:
        await self._right.asked_to_stop(after)
        if self.task is not None:
            self.task.cancel()

    def _on_lost(self) -> None:
        """Stop, and report nothing: another process runs in the thread by now."""
        self._run_id = ""
        if self.task is not None:
            self.task.cancel()

    async def on_event(self, event: Event) -> None:
        """Report an event of the agent."""
        self._log.add(self._mapping.map(event))
        await self._log.room()

    async def interrupt(self, interrupts: list[Interrupt]) -> None:
        """Report that the run waits for the answers to these questions, which are in the store."""
        await self._finish(RunFinishedInterruptOutcome(type="interrupt", interrupts=interrupts))

    async def succeed(self) -> None:
        """Report that the turn has ended."""
        await self._finish(RunFinishedSuccessOutcome(type="success"))

    async def stop(self) -> None:
        """Report that the turn was stopped."""
        await self._finish(RunFinishedCancelledOutcome(type="cancelled"))

    async def fail(self, message: str) -> None:
        """Report why the turn has ended."""
        await self._end(RunErrorEvent(message=message))

    async def _finish(
        self,
        outcome: RunFinishedSuccessOutcome
        | RunFinishedInterruptOutcome
        | RunFinishedCancelledOutcome,
    ) -> None:
        ended = RunFinishedEvent(thread_id=self.thread_id, run_id=self._run_id, outcome=outcome)
        interrupted = isinstance(outcome, RunFinishedInterruptOutcome)
        await self._end(*self._mapping.end(suspended=interrupted), ended)

    async def _end(self, *events: BaseEvent) -> None:
        """Report the end of the run, if one is in progress; the events release its lease."""
        lease, self._lease = self._lease, None
        if lease is None or self._stopping is None:
            return
        await run_shielded(_give_up(lease, self._stopping))
        if self._run_id:
            self._log.add(events, release=lease.owner)


async def _give_up(lease: RenewedLease, stopping: asyncio.Task[None]) -> None:
    await cancel_and_wait([stopping])
    await lease.give_up()
