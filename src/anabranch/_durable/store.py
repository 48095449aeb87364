"""The port of the store of calls: records, and the promises of every store.

``tests/suites`` has the checks that each store must pass. Every promise concerns one call
(``call_id``) and holds for concurrent processes: some serial order of their operations explains
what each of them sees. Texts are opaque to the store, which returns every ``str`` unchanged. Times
are seconds since the epoch and come from the caller's clock.

A write survives a crash of the process, the database and the machine. A lease survives a crash of
the database or the machine only if another write followed it: work under a lost lease was not
recorded either.

Reading about a call that never began, or was pruned, finds nothing. Writing to it raises
:class:`UnknownCallError`, so that no caller believes an unrecorded write.

A worker may be suspended at any moment, and continue after another has taken over. So a write that
only the running worker may make names the owner of its lease. The store accepts it only if that
owner was the last to take the lease, even an expired one, and has not released it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from anabranch._durable.engine import Processes
from anabranch._durable.transitions import CallEvent, CallState


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The lease on a call: its owner, the owner's process, and its end without renewal."""

    owner: str
    until: float
    process: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call in a store.

    Attributes:
        arguments: the validated arguments as JSON text, to open the call again.
        deadline: the time at which the call expires, unless it is continued before. While it is
            being undone, the time of the next attempt; after its end, the time from which it may be
            deleted.
        principal: the caller's name at the edge; empty if unknown.
        node: the node of the thread that calls the tool; empty for none, like ``thread``.
        version: the version of the code that last continued the call; empty if unknown.
        failure: the recorded error with which the call has failed, as text.
        is_stopped: whether the call is undone because it was stopped, and not because it expired.
        asked: the time since which a user is asked; ``None`` if the last round asked no user.
        lease: the lease on the call, which may have run out.
    """

    call_id: str
    tool: str
    arguments: str
    started: float
    deadline: float
    state: CallState = CallState.READY
    principal: str = ""
    thread: str = ""
    node: str = ""
    version: str = ""
    failure: str | None = None
    is_stopped: bool = False
    asked: float | None = field(default=None, compare=False)
    lease: LeaseRecord | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """The end of one round of a call; rounds are numbered from 0.

    The ``state`` is empty if the call has ended. No run reads the ``notes``. ``asked`` is the time
    since which a user is asked for an answer, or ``None``; the store keeps it only in the record of
    the call.
    """

    number: int
    reply: str
    state: str = ""
    notes: str = field(default="", compare=False)
    asked: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """An answer in an inbox; ``by`` is empty for the client, and ``round`` has taken the answer."""

    text: str
    by: str = ""
    round: int | None = None


@dataclass(frozen=True, slots=True)
class OpenedRound:
    """The record of a round, for a worker that wants to run it.

    Attributes:
        entries: the entries that the round was the first to record, in order.
        answers: the answers of the round, by step: those of its client, and those from the inbox.
        entered: the steps of answers from the inbox that others than the client have given.
        undone: the steps whose compensations have run, of a call that is ``undoing``.
        given: stands for the round and its answers, for :meth:`CallStore.record`.
        is_leased: whether the worker has the lease now. Otherwise the round or the call has ended,
            or the client has given other answers before.
    """

    call: CallRecord
    ended: RoundRecord | None
    entries: Mapping[str, str]
    answers: Mapping[str, str]
    entered: frozenset[str] = frozenset()
    undone: frozenset[str] = frozenset()
    given: str = field(default="", compare=False)
    is_leased: bool = False

    def was_given(self, answers: Mapping[str, str]) -> bool:
        """Return whether the client's answers equal ``answers``; answers of others do not count."""
        own, same = (
            {step: text for step, text in each.items() if step not in self.entered}
            for each in (self.answers, answers)
        )
        return own == same


class CallStore(Protocol):
    """A store of calls. Only the library calls its methods, except ``close``.

    Methods raise :class:`StoreError` and leave no partial change.
    """

    @property
    def processes(self) -> Processes:
        """The processes that share the store; :class:`UnknownProcesses` if it cannot tell."""
        ...

    async def begin(self, call: CallRecord, *, after: RoundRecord | None = None) -> CallRecord:
        """Create the call, or change nothing if it exists; return the stored call.

        ``after`` is a round of another line, which has ended before this call begins.
        """
        ...

    async def find(self, call_id: str) -> CallRecord | None:
        """Return the call, or ``None`` if the store does not have it."""
        ...

    async def calls(
        self,
        limit: int,
        *,
        tool: str | None = None,
        states: Collection[CallState] | None = None,
        begins: str = "",
        after: CallRecord | None = None,
    ) -> list[CallRecord]:
        """Return at most ``limit`` calls, the last begun first; calls of one time by name, backwards.

        ``begins`` is the beginning of the calls' names; ``after`` is the last call of the page
        before.
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
        asks: Collection[str] = (),
        answers: Mapping[str, str] | None = None,
        new: CallRecord | None = None,
    ) -> OpenedRound | None:
        """Open round ``number``: take the lease on the call, and the round's answers, atomically.

        The result is ``None`` if another owner has the lease at ``now``. If another's lease lasts
        longer than ``until``, the store shortens it to ``until``: a clock that was ahead has
        written it, and a living owner renews it in time.

        If the round or the call has ended, the record is returned, and nothing is taken. If the
        round was opened before, it has the same answers again, and the client must have given these
        ``answers`` (:meth:`OpenedRound.was_given`). Otherwise the round takes from the inbox the
        answers to ``asks``, where the store first puts ``answers``, unless a step has an answer
        already. Nothing changes if the client has given other answers before, or another round has
        taken one of these steps. A round with neither answers nor entries may be opened with
        others: later records of its earlier worker are refused.

        ``new`` is the call to create, in the state ``running``, if the store does not have it.
        """
        ...

    async def renew(self, call_id: str, owner: str, until: float) -> bool:
        """Extend the lease on the call, even an ended lease, to ``until``.

        Return false if another owner has taken it since, it was released, or the call is gone. The
        lease is then not taken again, since another worker may have continued the call.
        """
        ...

    async def release(self, call_id: str, owner: str) -> None:
        """Release the lease of ``owner``; its round keeps the answers, on which effects may depend."""
        ...

    async def answer(
        self,
        call_id: str,
        answers: Mapping[str, str],
        *,
        by: str,
        deadline: float | None = None,
        now: float = -math.inf,
    ) -> dict[str, str] | None:
        """Put answers of others than the client into the inbox, all or none; earlier answers stay.

        A ``deadline`` later than the call's becomes the call's, even without an answer. Return the
        texts that are there now, for the steps in ``answers``; ``None``, without any write, if the
        call takes no answers any more, or the call's deadline is ``now`` or earlier.
        """
        ...

    async def answers(self, call_id: str) -> dict[str, AnswerRecord]:
        """Return the answers in the call's inbox, by step."""
        ...

    async def record(
        self, call_id: str, number: int, entries: Mapping[str, str], *, given: str = ""
    ) -> dict[str, str]:
        """Write entries of round ``number``, all or none; return the texts stored now for these ids.

        An earlier text for a step id stays, with the round that recorded it. The write needs no
        lease: an event that has happened is recorded, even late. But if the round was opened since
        with other answers than those of :attr:`OpenedRound.given`, the store raises ``StoreError``.
        """
        ...

    async def entries(self, call_id: str, number: int) -> dict[str, str]:
        """Return the entries that round ``number`` was the first to record, in order."""
        ...

    async def fail(self, call_id: str, error: str, owner: str) -> bool:
        """Record that a call has failed; its first error stays. Return false if ``owner`` has no lease."""
        ...

    async def undone(self, call_id: str, step_id: str) -> None:
        """Record that some worker has run a step's compensation."""
        ...

    async def undone_steps(self, call_id: str) -> frozenset[str]:
        """Return the steps whose compensations have run."""
        ...

    async def end_round(
        self, call_id: str, record: RoundRecord, event: CallEvent, *, owner: str, deadline: float
    ) -> RoundRecord:
        """Write a round's end, change the call's state, and release the lease, atomically.

        ``deadline`` and the time ``asked`` of the record become the call's. If the round has ended
        before, that end is returned, and nothing is written. Otherwise, if ``owner`` does not have
        the lease, the store raises ``StoreError``.
        """
        ...

    async def round(self, call_id: str, number: int) -> RoundRecord | None:
        """Return the end of round ``number``, or ``None`` if it has not ended."""
        ...

    async def last_round(self, call_id: str) -> RoundRecord | None:
        """Return the ended round with the highest number, or ``None`` before the first."""
        ...

    async def take_to_undo(
        self, call_id: str, owner: str, now: float, until: float, *, is_due: bool = True
    ) -> CallRecord | None:
        """Take the lease on an open call to undo its effects; return the call.

        With ``is_due``, the call's deadline must be over; otherwise the call is marked as stopped.
        The result is ``None`` if the call is not open or not due, or another owner has the lease at
        ``now``. Another's lease is shortened as in :meth:`open_round`.
        """
        ...

    async def move(
        self, call_id: str, event: CallEvent, *, owner: str, deadline: float | None = None
    ) -> bool:
        """Change a call's state by an event of ``ENDS_LEASE``; set a new deadline if given.

        A worker that leaves has not run the call: if the round that was opened last has no entries,
        it returns its answers. Answers from the inbox stay for the next round; answers of the
        client are deleted. Return false, without any change, if ``owner`` does not have the lease,
        or the event does nothing in the call's state.
        """
        ...

    async def adopt(self, call_id: str, version: str, owner: str) -> bool:
        """Change the version of the call's code; return false if ``owner`` lacks the lease."""
        ...

    async def hasten(self, call_id: str, deadline: float, state: CallState) -> bool:
        """Move forward the deadline of a call in ``state``, even if a worker has a lease on it.

        Return false, without any change, if the call is not in that state, or is due as early
        already.
        """
        ...

    async def expired(self, now: float, limit: int) -> list[CallRecord]:
        """Return open calls whose deadline is ``now`` or earlier, the most overdue first."""
        ...

    async def open_calls(self) -> tuple[int, float | None, float | None]:
        """Return the number of open calls, and the times of the earliest start and user question."""
        ...

    async def prune(self, before: float, limit: int) -> int:
        """Delete ended calls with a deadline before ``before``, the oldest first; return their number."""
        ...

    async def close(self) -> None:
        """Close connections and files; a second call does nothing. Afterwards, other methods raise."""
        ...
