"""The port behind which calls are stored: records, and what every store of calls promises.

``stores/`` has the implementations, ``tests/suites`` the checks that each must pass. A
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

What state a call is in, and what moves it, is in ``call_states.py``; a store moves it in no other way.

A worker may be suspended at any moment, and go on when another has long taken over. So what only the
worker that runs a call may write names the owner of its lease, and is written only if that owner is
the last that has taken the lease, and has not released it. Whether the lease has run out meanwhile
does not matter: no other has run the call.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from anabranch._durable.call_states import CallEvent, CallState
from anabranch._durable.engine import Processes


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Who has the lease on a call, and until when, unless it is renewed."""

    owner: str
    until: float


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call in a store.

    Attributes:
        call_id: its name.
        tool: the tool's name.
        arguments: the validated arguments as JSON text, to open the call again.
        started: when it began.
        deadline: when it expires, unless it is continued before; while it is undone, when that is
            tried again; once it has ended, when it may be deleted.
        state: what it is doing.
        principal: who has called, as the edge names them; empty if it does not know.
        version: that of the code which has begun it, or was the last to continue it; empty if it
            is not known.
        failure: the error with which it has failed, as text, where that is recorded.
        is_stopped: whether it is undone, or was, since it was stopped; not since its time was over.
        asked: since when a person is asked; ``None`` if none was when its last round ended.
        lease: who has the lease on it, which may have run out. Two calls that differ in nothing but
            this and ``asked`` are equal.
    """

    call_id: str
    tool: str
    arguments: str
    started: float
    deadline: float
    state: CallState = CallState.READY
    principal: str = ""
    version: str = ""
    failure: str | None = None
    is_stopped: bool = False
    asked: float | None = field(default=None, compare=False)
    lease: LeaseRecord | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """How one round of a call ended.

    Attributes:
        number: rounds count from 0.
        reply: what was replied, as text.
        state: what the next round starts from; empty if the call has ended.
        notes: what else is known of the round, for those who look at the call later. No run reads
            them, and two rounds that differ in nothing else are equal.
        asked: since when a person is asked whose answer the call waits for at its end, if one is.
            It becomes the call's; the store has it nowhere else.
    """

    number: int
    reply: str
    state: str = ""
    notes: str = field(default="", compare=False)
    asked: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """An answer in the inbox of a call.

    Attributes:
        text: the answer; the store does not read it.
        by: who has given it, as the edge says; empty for the client, with a request of its own.
        round: the round that has taken it; ``None`` while none has.
    """

    text: str
    by: str = ""
    round: int | None = None


@dataclass(frozen=True, slots=True)
class OpenedRound:
    """What is recorded of a round, for a worker that wants to run it.

    Attributes:
        call: its call.
        ended: how the round ended, if it has.
        entries: what it was the first to record, in the order of recording.
        answers: those that it has, by step: what its client has given, and what was in the inbox.
        entered: the steps of these answers that were in the inbox, and that others have given than
            its client.
        undone: the steps whose compensations have been run, of a call that is ``undoing``.
        given: stands for the round and its answers, for :meth:`CallStore.record`.
        is_leased: whether the worker has the lease now. Otherwise the round has ended, or the call
            has, or its client has given it other answers before.
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
        """Return whether its client has given it these: what others have entered binds no client."""
        own, same = (
            {step: text for step, text in each.items() if step not in self.entered}
            for each in (self.answers, answers)
        )
        return own == same


class CallStore(Protocol):
    """Where calls are stored. Methods raise :class:`StoreError` and leave nothing half done."""

    @property
    def processes(self) -> Processes:
        """The processes that share the store; :class:`UnknownProcesses` if it cannot tell."""
        ...

    async def begin(self, call: CallRecord, *, after: RoundRecord | None = None) -> CallRecord:
        """Create the call; if it is there already, change nothing. Return what is there.

        ``after`` is a round that has ended before this call begins, in another line of it.
        """
        ...

    async def find(self, call_id: str) -> CallRecord | None:
        """Return the call, ``None`` if the store does not have it."""
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
        """Return at most ``limit`` calls, the last begun first; of those, by name, backwards.

        Args:
            limit: the size of a page.
            tool: only this tool's.
            states: only those in one of these states.
            begins: only those whose names begin with this.
            after: the last call of the page before.
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
        """Open round ``number``: take the lease on the call, and what it is answered, as one.

        ``None`` if another owner has the lease at ``now``; at ``until`` it is free. At most one owner
        has it at any time. Another's lease that lasts longer than ``until`` is shortened to it: a clock
        that was ahead has written it, and its owner renews it in time, if it lives.

        If the round has ended, or the call has, that is returned, and nothing is taken. If the round
        was opened before, it has the answers that it had then, of which the client must have given
        these ``answers`` (:meth:`OpenedRound.was_given`). Otherwise it takes from the inbox what is there
        for ``asks``, with these ``answers``, which are put there, unless one is there already. If the client
        has given other ones before, or another round has taken one of these steps, nothing is taken or
        changed. A round that has neither answers nor entries may be
        opened with others: what its worker of before records then is refused.

        Args:
            call_id: the call.
            number: the round's.
            owner: who takes the lease.
            now: the time.
            until: when the lease runs out.
            asks: the steps whose questions are open.
            answers: what the client gives to some of them.
            new: what the call begins as if the store does not have it; it is running then.
        """
        ...

    async def renew(self, call_id: str, owner: str, until: float) -> bool:
        """Have the lease on the call last until ``until``, also one that has run out.

        False if another owner has taken it since, it was released, or the call is gone: the lease
        is not taken again, since another may have continued the call meanwhile.
        """
        ...

    async def release(self, call_id: str, owner: str) -> None:
        """Leave the call, if ``owner`` has the lease; else nothing happens.

        The round has taken its answers: something may have been done that depends on them.
        """
        ...

    async def answer(
        self,
        call_id: str,
        answers: Mapping[str, str],
        *,
        by: str,
        deadline: float | None = None,
    ) -> dict[str, str] | None:
        """Put answers that ``by`` has given, and not the client, into the inbox; the first text stays.

        All are put there, or none. A ``deadline`` becomes the call's if it is later than that.

        Returns the texts that are there now, for the steps in ``answers``; ``None``, and
        nothing is written, if the call takes no answers any more.
        """
        ...

    async def answers(self, call_id: str) -> dict[str, AnswerRecord]:
        """Return the inbox, by step."""
        ...

    async def record(
        self, call_id: str, number: int, entries: Mapping[str, str], *, given: str = ""
    ) -> dict[str, str]:
        """Write entries of round ``number``, all or none; the first text for a step id stays.

        It stays in whatever round of the call it was recorded. They are written also without the lease:
        what has happened is recorded, also late. But if the round was opened since with other answers
        than those that :attr:`OpenedRound.given` stands for, a ``StoreError`` is raised, and nothing
        is written.

        Returns the texts that are stored now, for the ids in ``entries``. When this returns, they
        survive a crash of this process and of the machine.
        """
        ...

    async def entries(self, call_id: str, number: int) -> dict[str, str]:
        """Return what round ``number`` was the first to record, in the order of recording."""
        ...

    async def fail(self, call_id: str, error: str, owner: str) -> bool:
        """Record that the call has failed, so that its compensations are run next; the first error stays.

        Of a call that is ``undoing`` nothing is written: why it is undone is known. False if ``owner``
        does not have the lease; then nothing is written.
        """
        ...

    async def undone(self, call_id: str, step_id: str) -> None:
        """Record that a step's compensation has been run, whichever worker has run it."""
        ...

    async def undone_steps(self, call_id: str) -> frozenset[str]:
        """Return the steps whose compensations have been run."""
        ...

    async def end_round(
        self,
        call_id: str,
        record: RoundRecord,
        event: CallEvent,
        *,
        owner: str,
        deadline: float,
    ) -> RoundRecord:
        """Write how a round ended, move the call by ``event``, and release the lease, as one.

        ``deadline`` and the time ``asked`` of the record become the call's. If the round has ended
        before, that is returned, and nothing is written. Otherwise, if ``owner`` does not have the
        lease, a ``StoreError`` is raised.
        """
        ...

    async def round(self, call_id: str, number: int) -> RoundRecord | None:
        """Return how round ``number`` ended, ``None`` if it has not."""
        ...

    async def last_round(self, call_id: str) -> RoundRecord | None:
        """Return the ended round with the highest number, ``None`` before the first."""
        ...

    async def take_to_undo(
        self, call_id: str, owner: str, now: float, until: float, *, is_due: bool = True
    ) -> CallRecord | None:
        """Take the lease on an open call to undo what it has done; return the call.

        If it need not be due, it is stopped, which stays known (:attr:`CallRecord.is_stopped`). ``None``,
        and nothing is written, if it is not open, another owner has the lease at ``now``, or, where it
        has to be due, its deadline is later.
        """
        ...

    async def move(
        self, call_id: str, event: CallEvent, *, owner: str, deadline: float | None = None
    ) -> bool:
        """Move a call by an event that ends the lease of ``owner``, maybe with a new deadline.

        That is one of ``raise``, ``retry``, ``leave``, ``expire`` and ``stop``. Who leaves in this way
        has not run the call: if nothing is recorded in the round that was opened last, it has taken no
        answers. Those in the inbox are there for the next one; what its client has given is forgotten.
        False, and nothing
        changes, if it does not have the lease, or the event does nothing in the call's state.
        """
        ...

    async def adopt(self, call_id: str, version: str, owner: str) -> bool:
        """Make the call that of another version of the code; false if ``owner`` lacks the lease."""
        ...

    async def postpone(
        self, call_id: str, deadline: float, state: CallState, *, now: float
    ) -> bool:
        """Move the deadline of a call back that is in a state, and that no one has a lease on at ``now``.

        False, and nothing changes, if it is not, or has as much time already.
        """
        ...

    async def hasten(self, call_id: str, deadline: float, state: CallState) -> bool:
        """Move the deadline of a call forward that is in a state, also if a worker has a lease on it.

        False, and nothing changes, if it is not, or is due as early already.
        """
        ...

    async def expired(self, now: float, limit: int) -> list[CallRecord]:
        """Return open calls whose deadline is ``now`` or earlier, the longest overdue first."""
        ...

    async def open_calls(self) -> tuple[int, float | None, float | None]:
        """Return how many calls are open, when the first of them began, and when the first asked.

        That is the longest waiting for a person: :attr:`CallRecord.asked`, of calls that wait.
        """
        ...

    async def prune(self, before: float, limit: int) -> int:
        """Delete calls that have ended and whose deadline lies before ``before``; return how many.

        All that belongs to them goes with them. The oldest go first.
        """
        ...

    async def close(self) -> None:
        """Close connections and files; closing again does nothing. Other methods then raise."""
        ...
