"""The port of run events: what happens in a run, numbered and stored, for readers in any process.

What a run is, its writer decides: the web application has one for each conversation. ``stores/`` has
the implementations, ``anabranch.testing.suites`` the checks that each must pass.

Events are stored before they are read, wherever the reader is; they survive a crash of the process.
Appending does not wait for the disk: if the machine or the database server crashes, the last moments
before may be lost, and the numbers of those events are given to others.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.errors import StoreError

__all__ = ["MissedEventsError", "NewEvents", "RunEvents", "TakenRun"]


class MissedEventsError(StoreError):
    """A reader comes back for events that are not stored: they were pruned, or never were there.

    Attributes:
        last: the number of the run's last event.
    """

    def __init__(self, run: str, after: int, last: int) -> None:
        self.last = last
        super().__init__(
            f"Events of {run!r} after number {after} are no longer stored."
            f" Read what they were about, and follow from {last}."
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

    Numbers count from 1 in each run, without gaps, in the order in which events were appended; no
    number is ever used again. A run needs no beginning: one without events has the number 0.
    A store may delete the oldest events of a run that has grown long; but while its lease is not
    released, none from the last :meth:`begin` on.
    Times are seconds since the epoch and come from the caller's clock.
    """

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

    def follow(self, run: str, after: int) -> AsyncGenerator[tuple[int, Sequence[bytes]]]:
        """Yield the events after number ``after``, then further ones as they are appended, for ever.

        They come in batches: the number of the first of them, and those that follow it. A reader
        that is slow holds up no one: what it has not read stays in the store.

        Raises:
            MissedEventsError: events after ``after`` are not stored any more, or ``after`` is
                beyond the last.
        """
        ...

    async def lease(self, run: str, owner: str, now: float, until: float) -> bool:
        """Take, or renew, the right to run; as :meth:`CallStore.lease`, but a run need not exist.

        A lease that was not released is not free at the time 0, however long ago it ran out.
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
