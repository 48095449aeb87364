"""The port behind which calls are stored: records, and what every store of calls promises.

``stores/`` has the implementations, ``anabranch.testing.suites`` the checks that each must pass. A
server works without a store, too: then all state is in the journal that travels with the client.

Every promise is about one call (``call_id``) and holds with several processes at work: whatever
they do at the same time, some order of one after the other explains what each of them sees. Texts
are opaque to the store: any ``str`` comes back as it was. Times are seconds since the epoch and
come from the caller's clock.

What has been written survives a crash of the process that wrote it. It also survives a crash of the
database and of the machine, with one exception: a lease lasts only if something else was written
after it. What is done under a lease that is lost with the machine has not been recorded either.

Reading about a call that was never begun, or was pruned, finds nothing; writing to it raises
:class:`UnknownCallError`, so that a caller never takes for recorded what is not.

A worker may be suspended at any moment, and go on when another has long taken over. So what only the
worker that runs a call may write names the owner of its lease, and is written only if that owner is
the last that has taken the lease, and has not released it. Whether the lease has run out meanwhile
does not matter: no other has run the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

__all__ = [
    "CallRecord",
    "CallStore",
    "LeaseRecord",
    "OpenedRound",
    "RoundRecord",
]


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call in a store.

    Attributes:
        call_id: its name.
        tool: the tool's name.
        arguments: the validated arguments as JSON text, to open the call again.
        started: when it began.
        deadline: when it expires, unless it is continued before; once it has ended, when it may be
            deleted.
        status: ``open``, ``done``, ``failed`` or ``expired``; only ``open`` can change.
        principal: who has called, as the edge names them; empty if it does not know.
        version: that of the code which has begun it, or was the last to continue it; empty if it
            is not known.
        asked: since when a person is asked; ``None`` if none was when its last round ended. Two calls
            that differ in nothing else are equal.
    """

    call_id: str
    tool: str
    arguments: str
    started: float
    deadline: float
    status: str = "open"
    principal: str = ""
    version: str = ""
    asked: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """How one round of a call ended.

    Attributes:
        number: rounds count from 0.
        answers: digest of the answers that the round was given.
        reply: what was replied, as text.
        state: what the next round starts from; empty if the call has ended.
        notes: what else is known of the round, for those who look at the call later. No run reads
            them, and two rounds that differ in nothing else are equal.
        asked: since when a person is asked whose answer the call waits for at its end, if one is.
            It becomes the call's; the store has it nowhere else.
    """

    number: int
    answers: str
    reply: str
    state: str = ""
    notes: str = field(default="", compare=False)
    asked: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Who has the lease on a call, and until when, unless it is renewed."""

    owner: str
    until: float


@dataclass(frozen=True, slots=True)
class OpenedRound:
    """What is recorded of a round, for a worker that wants to run it.

    Attributes:
        call: its call.
        ended: how the round ended, if it has.
        entries: what it was the first to record, in the order of recording.
    """

    call: CallRecord
    ended: RoundRecord | None
    entries: Mapping[str, str]


class CallStore(Protocol):
    """Where calls are stored. Methods raise :class:`StoreError` and leave nothing half done."""

    async def begin(self, call: CallRecord) -> CallRecord:
        """Create the call; if it is there already, change nothing. Return what is there."""
        ...

    async def find(self, call_id: str) -> CallRecord | None:
        """Return the call, ``None`` if the store does not have it."""
        ...

    async def calls(
        self,
        limit: int,
        *,
        tool: str | None = None,
        status: str | None = None,
        begins: str = "",
        recorded: str = "",
        after: CallRecord | None = None,
    ) -> list[CallRecord]:
        """Return at most ``limit`` calls, the last begun first; of those, by name, backwards.

        Args:
            limit: the size of a page.
            tool: only this tool's.
            status: only those of this status.
            begins: only those whose names begin with this.
            recorded: only those in which a round has recorded something under this step id.
            after: the last call of the page before.
        """
        ...

    async def leased(self, call_id: str) -> LeaseRecord | None:
        """Return the lease on the call, which may have run out; ``None`` if it was released."""
        ...

    async def lease(self, call_id: str, owner: str, now: float, until: float) -> bool:
        """Take, or renew, the lease on the call until ``until``.

        False if another owner holds it at ``now``; at ``until`` it is free. At most one owner
        holds it at any time. It prevents others from writing only what names its owner.

        Another's lease that lasts longer than ``until`` is shortened to it: a clock that was ahead
        has written it. Its owner renews it in time, if it lives.
        """
        ...

    async def renew(self, call_id: str, owner: str, until: float) -> bool:
        """Have the lease on the call last until ``until``, also one that has run out.

        False if another owner has taken it since, it was released, or the call is gone: the lease
        is not taken again, since another may have continued the call meanwhile.
        """
        ...

    async def open_round(
        self,
        call_id: str,
        number: int,
        owner: str,
        now: float,
        until: float,
        *,
        new: CallRecord | None = None,
    ) -> OpenedRound | None:
        """Take the lease on the call and read what is recorded of round ``number``, as one.

        If that round has ended, its end is returned, and the lease is neither needed nor taken.
        ``None`` if another owner holds the lease, as :meth:`lease` decides. ``new`` is what the
        call begins as if the store does not have it.
        """
        ...

    async def release(self, call_id: str, owner: str) -> None:
        """Release the lease; nothing happens if ``owner`` does not hold it."""
        ...

    async def record(
        self,
        call_id: str,
        number: int,
        entries: Mapping[str, str],
        *,
        owner: str | None = None,
    ) -> dict[str, str]:
        """Write entries of round ``number``, all or none; the first text for a step id stays.

        It stays in whatever round of the call it was recorded. Without ``owner``, the entries are
        written in any case: what has happened is recorded, also late. With it, a
        ``StoreError`` is raised and nothing written if ``owner`` does not hold the lease, unless
        all of them are stored already.

        Returns the texts that are stored now, for the ids in ``entries``. When this returns, they
        survive a crash of this process and of the machine.
        """
        ...

    async def entries(self, call_id: str, number: int) -> dict[str, str]:
        """Return what round ``number`` was the first to record, in the order of recording."""
        ...

    async def end_round(
        self,
        call_id: str,
        record: RoundRecord,
        *,
        deadline: float | None,
        status: str = "open",
        release: str | None = None,
    ) -> RoundRecord:
        """Write how a round ended; the first record for a round stays and is returned.

        Only if this one is the first and the call is open, ``deadline`` (unless ``None``),
        ``status`` and the time ``asked`` of the record become the call's. In any case, the lease of
        owner ``release`` is released. If that owner does not hold it, and the round has not ended,
        a ``StoreError`` is raised and nothing written.
        """
        ...

    async def round(self, call_id: str, number: int) -> RoundRecord | None:
        """Return how round ``number`` ended, ``None`` if it has not."""
        ...

    async def last_round(self, call_id: str) -> RoundRecord | None:
        """Return the ended round with the highest number, ``None`` before the first."""
        ...

    async def finish(
        self,
        call_id: str,
        status: str,
        *,
        deadline: float | None = None,
        version: str | None = None,
        owner: str | None = None,
    ) -> bool:
        """Move an ``open`` call to ``status``, maybe with a new ``deadline`` and ``version``.

        False if it is not open (any more), or ``owner`` is given and does not hold the lease; then
        nothing changes. With ``open`` as the status only these change. No lease is released.
        """
        ...

    async def expired(self, now: float, limit: int) -> list[CallRecord]:
        """Return open calls whose deadline is ``now`` or earlier, the longest overdue first."""
        ...

    async def open_calls(self) -> tuple[int, float | None, float | None]:
        """Return how many calls are open, when the first of them began, and when the first asked.

        That is the longest waiting for a person: :attr:`CallRecord.asked`, of calls without a lease.
        """
        ...

    async def prune(self, before: float, limit: int) -> int:
        """Delete calls that are not open and whose deadline lies before ``before``; return how many.

        All that belongs to them goes with them. The oldest go first.
        """
        ...

    async def close(self) -> None:
        """Close connections and files; closing again does nothing. Other methods then raise."""
        ...
