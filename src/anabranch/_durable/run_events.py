"""The port of run events: the numbered, stored events of a run, for readers in any process.

The store also has the unfinished turn of each run, and the time of the next *look*, when a worker
sees whether work can continue in a run without a turn. ``tests/suites`` has the checks of every
store.

Events are stored before any reader sees them. Appending does not wait for the disk: a crash of the
machine or the database server may lose the last events, and new events get their numbers. So an
event has a *mark* next to its number, by which a returning reader learns whether the stored event
is the one that it has read.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from anabranch._durable.engine import Processes
from anabranch._durable.transitions import TurnRecord


class EventId(NamedTuple):
    """The last event that a reader has read, or 0; a stored event has a positive mark."""

    number: int
    mark: int

    def __str__(self) -> str:
        return f"{self.number}-{self.mark:x}"


class EventBatch(NamedTuple):
    """Consecutive events, at least one, the number of the first, and the mark of each."""

    first: int
    events: Sequence[bytes]
    marks: Sequence[int]


class MissedEventsError(Exception):
    """A reader asks for events that the store has deleted, lost in a crash, or never had."""

    def __init__(self, run: str, after: int, last: EventId) -> None:
        self.last = last
        super().__init__(
            f"Events of {run!r} after number {after} are no longer stored."
            f" Read the present state, and follow from {last.number}."
        )


@dataclass(frozen=True, slots=True)
class NewEvents:
    """Events to append to a run, at least one.

    Attributes:
        key: the name of the first event, for :meth:`RunEvents.find`.
        owner: the owner of the lease on the run's turn, without which the events are not added;
            ``None`` to add them under any lease.
        ends: whether the owner's turn ends together with the append.
        look_at: the time of the next look after the ended turn, unless the run has an earlier one.
    """

    run: str
    events: Sequence[bytes]
    key: str = ""
    owner: str | None = None
    ends: bool = False
    look_at: float | None = None


class QueuedTurn(NamedTuple):
    """A turn that begins after a waiting one, and its first event."""

    id: str
    event: bytes


@dataclass(frozen=True, slots=True)
class TakenTurn:
    """A turn that a worker has taken, and the numbers of its first event, if stored, and last."""

    turn: TurnRecord
    begun: int | None
    last: int


class RunEvents(Protocol):
    """A store of run events. Methods raise :class:`StoreError` and leave no partial change.

    Numbers count from 1 in each run, without gaps. A run needs no creation: without events, it has
    the number 0. A store may delete the oldest events of a long run; but before its turn has ended,
    it deletes none from the last :meth:`begin` on.

    A crash never removes an event without those after it. If two events have the same number, one
    after the other, their marks differ, unless all events up to them are equal. A random mark for
    each append satisfies this. A digest of the event alone does not: an earlier event may differ.

    Times are seconds since the epoch and come from the caller's clock. ``per_share`` is the most
    turns of one share on which workers may work; ``None`` for no limit.
    """

    per_share: int | None

    @property
    def processes(self) -> Processes:
        """The processes that share the store; :class:`UnknownProcesses` if it cannot tell."""
        ...

    async def append(self, run: str, events: Sequence[bytes], *, at: float) -> int:
        """Add events, all or none, under any lease; return the number of the run's last event.

        Without events, nothing changes.
        """
        ...

    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        """Add events to different runs, all or none, except for runs whose owner has lost the lease.

        ``new`` has each run only once.
        """
        ...

    async def begin(
        self,
        run: str,
        turn: TurnRecord,
        event: bytes,
        *,
        at: float,
        share: str = "",
        works: bool = False,
    ) -> int | None:
        """Begin a turn, and add an event under the turn's id as its key; return the event's number.

        The run stores the ``share`` until its next turn begins: the user whose part of the workers
        the run uses. The turn counts as running for the share if the caller ``works`` on it, or
        once a worker takes it: a caller that only stores a message does not work.

        A look that is due ``at`` that time is deleted: the turn's worker looks. Return ``None``, without any change, if the
        key already has an event, the run has an unfinished turn, another turn is queued and begins
        at the next look, another client changes the run meanwhile, or the caller ``works`` and the
        share has ``per_share`` running turns. In the last case, a look at the run is due ``at``
        that time.
        """
        ...

    async def find(self, run: str, key: str) -> int | None:
        """Return the number of the first event that was appended under ``key``, or ``None``."""
        ...

    async def last(self, run: str) -> int:
        """Return the number of the last event; 0 before the first."""
        ...

    async def id_of(self, run: str, number: int | None = None) -> EventId:
        """Return the id of an event; by default of the last event, even if that event was deleted."""
        ...

    def follow(self, run: str, after: int | EventId) -> AsyncGenerator[EventBatch]:
        """Yield the events after ``after``, then further ones as they are appended, without end.

        A caller that has just read a number from the store may pass the number alone. A reader that
        continues through a crash learns of lost events with the next events at the latest. A slow
        reader delays no writer: unread events stay in the store.

        Raises ``MissedEventsError`` if events after ``after`` are no longer stored, or no event has
        that number or that mark. At the number 0, the mark does not count.
        """
        ...

    async def queue(self, run: str, turn_id: str, event: bytes) -> bool:
        """Store the first event of another turn, which begins after the ``waiting`` turn of the run.

        Return false, without any change, if the run's turn is not ``waiting``, or another turn is
        queued there. The beginning of the queued turn removes it from the queue.
        """
        ...

    async def queued(self, run: str) -> QueuedTurn | None:
        """Return the turn that begins after the ``waiting`` turn of the run, or ``None``."""
        ...

    async def claim(
        self, now: float, until: float, limit: int, *, version: str = ""
    ) -> Sequence[str]:
        """Return runs with work that is due at ``now``, and postpone the work ``until`` a time.

        The work is a turn that a worker of ``version`` may take, ``ready`` or ``waiting`` until
        now, or a look at a run without a turn. Runs of a share with ``per_share`` running turns are
        left out. The most overdue run comes first. Of concurrent callers, one gets each run.
        """
        ...

    async def take(
        self, run: str, owner: str, until: float, *, now: float, version: str | None
    ) -> TakenTurn | None:
        """Take the lease on the run's turn; return the turn with the range of its events, atomically.

        Only a turn that is ``ready`` for a worker of ``version`` is taken, or ``waiting`` for a
        time until ``now``; without a ``version``, any ``ready`` turn, and without a limit. Return
        ``None`` without such a turn, or if the run's share has ``per_share`` running turns. In the
        last case, the turn is due ``now``: a claim must find it once the share has room.
        """
        ...

    async def move(
        self, run: str, turn: TurnRecord, to: TurnRecord | None, *, now: float = math.inf
    ) -> bool:
        """Replace the record ``turn`` by the record ``to``, or delete it if ``to`` is ``None``.

        Return false, without any change, if the run no longer has ``turn``, or the turn is due
        after ``now``. The time ``due`` of ``turn`` itself does not count.
        """
        ...

    async def turn(self, run: str) -> TurnRecord | None:
        """Return the unfinished turn of a run, or ``None``."""
        ...

    async def look(self, run: str, at: float) -> None:
        """Schedule a worker's look at a run ``at`` a time, unless an earlier look is scheduled."""
        ...

    async def looked(self, run: str, at: float, *, now: float) -> None:
        """After a look at a run without a turn, schedule the next; infinity stands for no look.

        A look that is due at ``now`` stays, since it was asked for meanwhile.
        """
        ...

    async def overdue(
        self, now: float, limit: int, *, is_running: bool = False
    ) -> Sequence[tuple[str, TurnRecord]]:
        """Return runs with a due turn (if ``is_running``, a running one), the most overdue first."""
        ...

    async def renew(self, run: str, owner: str, until: float, /) -> bool:
        """Extend the lease of ``owner``, even an ended one; return false if ``owner`` lost it."""
        ...

    async def release(self, run: str, owner: str) -> None:
        """End the turn of ``owner`` without an event; do nothing if ``owner`` has no lease."""
        ...

    async def prune(self, before: float, limit: int) -> int:
        """Delete events of runs without an append since ``before``; return the number of deleted events.

        Events of a run with an unfinished turn stay, since some worker continues it. One call
        deletes at most ``limit`` events, the oldest of a run first. A run's numbers continue.
        """
        ...

    async def close(self) -> None:
        """Close connections and files; a second call does nothing. Afterwards, other methods raise."""
        ...
