"""The port of run events: what happens in a run, numbered and stored, for readers in any process.

What a run is, its writer decides: the web application has one for each conversation. ``stores/`` has
the implementations, ``tests/suites`` the checks that each must pass.

Events are stored before they are read, wherever the reader is; they survive a crash of the process.
Appending does not wait for the disk: if the machine or the database server crashes, the last events
before may be lost, and their numbers are given to others. So an event has a mark beside its number:
a reader who comes back with both learns whether what it has read is what is stored.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from anabranch._durable.engine import Processes
from anabranch.errors import StoreError


class EventId(NamedTuple):
    """What a reader comes back with: which event of a run was the last that it has read.

    Attributes:
        number: its number; 0 before the first event.
        mark: its mark, which is positive; 0 for an event that is not stored.
    """

    number: int
    mark: int

    def __str__(self) -> str:
        return f"{self.number}-{self.mark:x}"


class EventBatch(NamedTuple):
    """Events that follow one another, at least one.

    Attributes:
        first: the number of the first.
        events: all of them.
        marks: the mark of each.
    """

    first: int
    events: Sequence[bytes]
    marks: Sequence[int]


class MissedEventsError(StoreError):
    """A reader comes back for events that are not stored: pruned, lost in a crash, or never there.

    Attributes:
        last: the id of the run's last event.
    """

    def __init__(self, run: str, after: int, last: EventId) -> None:
        self.last = last
        super().__init__(
            f"Events of {run!r} after number {after} are no longer stored."
            f" Read what they were about, and follow from {last.number}."
        )


@dataclass(frozen=True, slots=True)
class NewEvents:
    """Events to be appended to a run.

    Attributes:
        run: the run.
        events: at least one.
        key: names the first of them, for :meth:`RunEvents.find`.
        release: the owner whose lease on the run is released with them, as one. Where it does not
            hold that any more, they are not added: who holds it now reports how the run ends.
        successor: to whom the lease passes then, and until when; by default, it is free.
    """

    run: str
    events: Sequence[bytes]
    key: str = ""
    release: str | None = None
    successor: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class TakenRun:
    """Where the events of a run are whose lease was taken.

    Attributes:
        begun: the number of the first event that was appended under the key, if it is stored.
        last: the number of the last event.
    """

    begun: int | None
    last: int


class RunEvents(Protocol):
    """Where events are stored. Methods raise :class:`StoreError` and leave nothing half done.

    Numbers count from 1 in each run, without gaps, in the order in which events were appended; none
    is used again, except after a crash. A run needs no beginning: one without events has the number 0.
    A store may delete the oldest events of a run that has grown long; but while its lease is not
    released, none from the last :meth:`begin` on.
    A crash of the machine, or of a server, may take the last events of a run, but none without
    those that follow it; only their numbers are used again. Of two events that have a number, one
    after the other, the marks differ, unless all events up to them are equal. A mark that is drawn
    at random for each append will do; a digest of the event alone will not, since the other may be
    equal to it where one before it is not.
    Times are seconds since the epoch and come from the caller's clock.
    """

    @property
    def processes(self) -> Processes:
        """The processes that share the store; :class:`UnknownProcesses` if it cannot tell."""
        ...

    async def append(
        self,
        run: str,
        events: Sequence[bytes],
        *,
        at: float,
        key: str = "",
        release: str | None = None,
    ) -> int:
        """Add events to one run, all or none; return the number of the run's last event.

        ``key`` and ``release`` are as in :class:`NewEvents`. Without events, nothing changes.
        """
        ...

    async def append_all(self, new: Sequence[NewEvents], *, at: float) -> None:
        """Add events to several runs, all or none, but for ends that come too late.

        Each run is named once.
        """
        ...

    async def begin(
        self,
        run: str,
        owner: str,
        until: float,
        event: bytes,
        *,
        at: float,
        key: str,
        instead: str | None = None,
    ) -> int | None:
        """Take the lease and add an event under a key, as one; return the event's number.

        Return ``None``, and change nothing, if the key has an event already, or if the lease was not
        released, however long ago it ran out, by an owner other than ``instead``. Where another
        client adds events meanwhile, that may be as well.
        """
        ...

    async def find(self, run: str, key: str) -> int | None:
        """Return the number of the first event that was appended under ``key``, if it is stored."""
        ...

    async def last(self, run: str) -> int:
        """Return the number of the last event, 0 before the first."""
        ...

    async def id_of(self, run: str, number: int | None = None) -> EventId:
        """Return the id of an event, by default of the last, whose mark outlives its deletion."""
        ...

    def follow(self, run: str, after: int | EventId) -> AsyncGenerator[EventBatch]:
        """Yield the events after ``after``, then further ones as they are appended, for ever.

        A mere number is for who has just learnt it from the store. A reader that is slow holds up
        no one: what it has not read stays in the store. One that goes on through a crash learns as
        well what it has missed, with the next events at the latest.

        Raises:
            MissedEventsError: if events after ``after`` are not stored any more; or no event has
                that number, or none with that mark. At the number 0, no mark is looked at.
        """
        ...

    async def lease(self, run: str, owner: str, now: float, until: float) -> bool:
        """Take, or renew, the right to run; as :meth:`CallStore.lease`, but a run need not exist.

        A lease that was not released is not free at the time 0, however long ago it ran out.
        """
        ...

    async def renew(self, run: str, owner: str, until: float, /) -> bool:
        """Have the lease of ``owner`` last until ``until``, also one that has run out.

        Return false if it is not the lease of ``owner`` any more: then it is not taken again.
        """
        ...

    async def take_over(self, run: str, owner: str, other: str, now: float, until: float) -> bool:
        """Pass the lease of ``owner`` on to another, if it has run out at ``now``.

        Return false if it has not, or is not the lease of ``owner`` any more. At an infinite time
        every lease has run out.
        """
        ...

    async def take(
        self, run: str, owner: str, other: str, until: float, key: str
    ) -> TakenRun | None:
        """Pass the lease of ``owner`` on to another, and return where the run's events are, as one.

        Return ``None`` if it is not the lease of ``owner`` any more.
        """
        ...

    async def overdue(self, now: float, limit: int) -> Sequence[tuple[str, str, float]]:
        """Return runs whose lease has run out at ``now`` and was not released; the longest first.

        Each with the owner of the lease, and the time at which it has run out.
        """
        ...

    async def release(self, run: str, owner: str) -> None:
        """Release the lease; nothing happens if ``owner`` does not hold it."""
        ...

    async def holder(self, run: str, now: float) -> str | None:
        """Return who holds the lease at ``now``, ``None`` if it is free; at 0, as for :meth:`lease`."""
        ...

    async def prune(self, before: float, limit: int) -> int:
        """Delete events of runs to which nothing was appended since ``before``; return how many.

        Those of a run whose lease was not released stay: someone goes on with it. At most ``limit``
        events go, the oldest of a run first. A run's numbers go on.
        """
        ...

    async def close(self) -> None:
        """Close connections and files; closing again does nothing. Other methods then raise."""
        ...
