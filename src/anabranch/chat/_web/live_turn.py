"""A turn that this process works on; the thread's log stores its events as an AG-UI run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextvars import ContextVar
from typing import TypeAlias

from ag_ui.core import (
    BaseEvent,
    Interrupt,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
)

from anabranch._aio import cancel_and_wait, run_shielded
from anabranch._durable import QueuedTurn, TurnRecord
from anabranch.agents import Addition, Event, FrontEnd, Suspension, ToolStarted, ToolSuspended
from anabranch.chat._turns import is_whole
from anabranch.chat._web.event_mapping import EventMapping
from anabranch.chat._web.log_writer import TextPiece
from anabranch.chat._web.run_input import Message, ends_of_all_open, input_in, open_branches
from anabranch.chat._web.thread_lease import ThreadLease, TurnLease
from anabranch.chat._web.thread_log import RUN_ENDS, ThreadLog
from anabranch.errors import StoreError
from anabranch.tree import HEAD, Surroundings, TreeStore

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

Outcome: TypeAlias = (
    RunFinishedSuccessOutcome | RunFinishedInterruptOutcome | RunFinishedCancelledOutcome
)

Asleep: TypeAlias = dict[tuple[str, str], float]
"""The time for which each sleeping tool use waits, by its calling node and use."""

STOPPED = b'"outcome":{"type":"cancelled"'
"""Marks the last event of a stopped run."""

current_turn: ContextVar[LiveTurn] = ContextVar("current_turn")


class TurnTimes:
    """The times at which a turn's tools wake up, as this process has seen them."""

    def __init__(self) -> None:
        self._asleep: Asleep = {}
        self._limits: list[float] = []

    def add(self, suspended: ToolSuspended) -> None:
        if suspended.asks:
            self._limits.append(suspended.until)
        else:
            self._asleep[suspended.caller, suspended.use.id] = suspended.until

    @property
    def has_slept(self) -> bool:
        return bool(self._asleep)

    def asleep(self, now: float) -> Asleep:
        """Return the uses that sleep at ``now``; the tree has the limits of questions."""
        return {use: until for use, until in self._asleep.items() if until > now}

    def earliest(self) -> float:
        known = [*self._asleep.values(), *self._limits]
        return min((until for until in known if until), default=0.0)


class LiveTurn:
    """Reports the events of one turn to the thread's log, as a run of AG-UI.

    ``is_waiting``: this process handed the run over until a time. ``is_followed``: a queued run
    begins next. ``is_resumed``: the run continues tools of no run. Nothing may be stored after
    ``has_ended``. ``suspension`` starts when this process loses the run: the process then undoes
    nothing, and records no failure.
    """

    def __init__(self, log: ThreadLog, right: ThreadLease) -> None:
        self.run: TurnRecord | None = None
        self.task: asyncio.Task[None] | None = None
        self.message: Message | None = None
        self.front_end: FrontEnd = FrontEnd()
        self.is_waiting = False
        self.is_followed = False
        self.is_resumed = False
        self.has_ended = False
        self.suspension: Suspension = Suspension(self._is_over)
        self.times: TurnTimes = TurnTimes()
        self._log = log
        self._right = right
        self._mapping = EventMapping()
        self._lease: TurnLease | None = None
        self._is_lost = False
        self._stopping: asyncio.Task[None] | None = None
        self._begun: tuple[int, list[bytes]] | None = None
        self._after = 0

    @property
    def is_new(self) -> bool:
        return self._begun is not None and self._lease is not None and not self._is_lost

    async def begin(self, started: QueuedTurn, *, works: bool = False) -> int:
        """Report the start of a run; return the number of the last event before the run.

        A run does not start twice. The caller must call :meth:`hand_over` afterwards, even after an
        error: the run may have started although the store failed. Raises :class:`BusyError` if
        another run is unfinished, or the caller ``works`` and the user has too many running turns.
        """
        begun = await self._right.begin(started, self._on_lost, works=works)
        if begun is None:
            return await self._log.begun(started.id) or 0
        self._lease, self.run = begun, begun.turn
        self._begun = (begun.last - 1, [started.event])
        return begun.last - 1

    async def take(self, *, to_end: bool = False) -> bool:
        """Take the lease on the thread's waiting run; ``to_end`` ignores its version.

        With ``to_end``, the caller may only end the run: other code may have to continue it.
        """
        self._lease = await self._right.take(self._on_lost, to_end=to_end)
        if self._lease is not None:
            self.run = self._lease.turn
        return self._lease is not None

    async def read(self) -> list[bytes]:
        """Return the run's events so far, and end the messages that a dead process left open.

        From then on, a request to stop ends the run, even a request sent earlier.
        """
        if self._begun is not None:
            self._after, events = self._begun
            self.message, self.front_end = input_in(events[0])
            self._stopping = asyncio.create_task(self._stop_when_asked(self._after))
            return events
        if (lease := self._lease) is None or lease.begun is None:
            return []
        self._after = lease.begun - 1
        self._stopping = asyncio.create_task(self._stop_when_asked(self._after))
        events = await self._log.read(self._after, lease.last)
        self.message, self.front_end = input_in(events[0])
        self._log.add(ends_of_all_open(events), lease=lease)
        self._mapping.continue_after(events)
        return events

    async def _stop_when_asked(self, after: int) -> None:
        await self._right.asked_to_stop(after)
        if self.task is not None:
            self.task.cancel()

    def _on_lost(self) -> None:
        # The work ends without a report: another process reports the run from here.
        self._is_lost = True
        self.suspension.begin()
        if self.task is not None:
            self.task.cancel()

    async def join(self, lines: Iterable[Surroundings]) -> None:
        run = await self._right.open_run()
        begun = None if run is None else await self._log.begun(run.id)
        if begun is not None:
            is_open = open_branches(await self._log.read(begun))
            for around in lines:
                self._mapping.continue_below(around, is_open)

    async def write(self, store: TreeStore, added: Addition) -> None:
        """Store nodes and results with their events; the turn's last reply also ends the turn.

        A worker stores nothing after another has taken the run. A user's answer is stored anyway.
        """
        is_by_user = self._begun is not None and self.task is None
        owner = None if is_by_user or self.run is None else self.run.owner
        events: list[BaseEvent | TextPiece] = [*self._mapping.added(added.events)]
        lease = None if is_by_user or not self._is_last(added) else self._lease
        if lease is not None:
            await self._log.flush()  # which may take longer than a lease without renewal
            await lease.give_up()
            success = RunFinishedSuccessOutcome(type="success")
            events += [*self._mapping.end(last=added.nodes[-1]), self._finished(success)]
        await self._log.write(events, store, added, owner, ends=lease is not None)
        if lease is not None:
            self.has_ended = True
            await self._leave()
        for node in added.nodes:
            self._mapping.note(node)

    def _is_last(self, added: Addition) -> bool:
        is_at_head = any(each.name == HEAD for each in added.refs)
        may_be_followed = self.run is None or self.run.wakes_at > 0
        return is_at_head and is_whole(added.nodes[-1]) and not may_be_followed

    async def on_event(self, event: Event) -> None:
        """Log an event; stop before a tool starts if another process has the run."""
        self._log.add(self._mapping.map(event), lease=self._lease)
        if isinstance(event, ToolSuspended):
            self.times.add(event)
        is_lost = isinstance(event, ToolStarted) and self.suspension.begun
        if is_lost and self.task is not None:  # another process may call the tools by now
            if self.task is not asyncio.current_task():
                self.task.cancel()
            raise asyncio.CancelledError
        await self._log.room()

    def _is_over(self) -> bool:
        return self._lease is not None and self._lease.is_over

    async def follows_a_stop(self) -> bool:
        before = reversed(await self._log.read(0, self._after + 1))
        end = next((each for each in before if each.startswith(RUN_ENDS)), b"")
        return STOPPED in end

    @property
    def has_slept(self) -> bool:
        return self.times.has_slept or (self.run is not None and self.run.wakes_at > 0)

    async def ask(self, interrupts: list[Interrupt], until: float = 0.0) -> None:
        """End the run with these questions; AG-UI ends calls of the front end as a success.

        With ``until``, a worker looks at the thread then, unless another run starts before.
        """
        outcome: Outcome = RunFinishedSuccessOutcome(type="success")
        if interrupts:
            outcome = RunFinishedInterruptOutcome(type="interrupt", interrupts=interrupts)
        await self._finish(outcome, until, continues=True)

    async def succeed(self, *, is_empty: bool = False) -> None:
        until = self.times.earliest() if is_empty else 0.0
        await self._finish(RunFinishedSuccessOutcome(type="success"), until)

    async def stop(self) -> None:
        await self._finish(RunFinishedCancelledOutcome(type="cancelled"), self.times.earliest())

    async def fail(self, message: str) -> None:
        ended = RunErrorEvent(message=message)
        await self._end(*self._mapping.end(), ended, until=self.times.earliest())

    async def hand_over(
        self, *, is_called: bool = False, version: str = "", until: float = 0.0
    ) -> TurnRecord | None:
        """Leave the run to a worker; return the waiting run, ``None`` if there is none.

        ``is_called``: the caller calls a worker next. Only a worker of ``version`` takes the run,
        at the time ``until``. A lost run stays unchanged: its worker finds the results stored here.
        """
        if (lease := await self._leave()) is None:
            return None
        self.is_waiting = bool(until)
        try:
            return await self._right.hand_over(
                lease, is_called=is_called, version=version, until=until
            )
        except StoreError as error:
            name = self._log.thread_id
            logger.warning("thread %r: a run waits until its lease expires: %s", name, error)
            return lease.turn

    async def drop(self) -> None:
        if (lease := await self._leave()) is not None:
            async with lease:
                pass

    async def _finish(
        self, outcome: Outcome, until: float = 0.0, *, continues: bool = False
    ) -> None:
        ended = self._finished(outcome)
        await self._end(*self._mapping.end(suspended=continues), ended, until=until)

    def _finished(self, outcome: Outcome) -> RunFinishedEvent:
        run_id = "" if self.run is None else self.run.id
        return RunFinishedEvent(thread_id=self._log.shown_id, run_id=run_id, outcome=outcome)

    async def _end(self, *events: BaseEvent, until: float = 0.0) -> None:
        if (lease := await self._leave()) is not None:
            await run_shielded(lease.give_up())
            if self._is_lost:
                return
            if self.run is not None and self.run.wakes_at:  # only a waiting run has a queue
                self.is_followed = await self._right.queued() is not None
                until = self._right.now() if self.is_followed else until
            self._log.add(events, lease=lease, ends=True, look_at=until or None)

    async def _leave(self) -> TurnLease | None:
        lease, self._lease = self._lease, None
        if lease is not None and self._stopping is not None:
            await run_shielded(cancel_and_wait([self._stopping]))
        return lease
