"""Opens one round of a call; repeats the record of an ended round, or runs and records the round.

A round accepts one set of answers. A different answer is refused, or starts another *line* of the
call, a copy from that round on. The caller plays the round::

    async with rounds.open(job, journal, answers) as opened:
        if isinstance(opened, RoundRecord):
            ...  # it has ended before
        else:
            ...  # run the call with opened.recorder, then opened.returned(…) or opened.asked(…)
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from anabranch._durable.entries import dump_answers, load_answers, merge, notes_text
from anabranch._durable.job import Durability, Job
from anabranch._durable.lease import Lease
from anabranch._durable.recorder import (
    ForeignErrors,
    Replies,
    StoreRecorder,
    error_reply,
    load_error,
    value_reply,
)
from anabranch._durable.rehearsal import fits
from anabranch._durable.states import (
    begin_line,
    check_carried,
    handed_out,
    is_compensated,
    name_line,
    sealed_size,
)
from anabranch._durable.store import CallRecord, OpenedRound, RoundRecord
from anabranch._durable.transitions import UNDONE, CallEvent, CallState
from anabranch._engine import Answer, Ask, Entry, Finished, Journal, wakes_at
from anabranch.errors import (
    CallExpiredError,
    IdempotencyKeyError,
    InvalidTokenError,
    OtherVersionError,
    StoreError,
    UnknownCallError,
)
from anabranch.tool import Runtime, Tool, without_defaults

logger: logging.Logger = logging.getLogger("anabranch.durable")

R = TypeVar("R")


class UnrecordedRound:
    """A round without a store: the state that the client gets is the only record."""

    recorder: None = None

    def __init__(self, job: Job, journal: Journal, failure: Exception | None = None) -> None:
        self.failure = failure
        self.left: Mapping[str, Entry] = {}
        self._job = job
        self._journal = journal

    async def returned(self, value: object) -> Finished[Any]:
        return Finished(value)

    async def asked(self, asks: tuple[Ask, ...], replies: Replies[R]) -> R:
        """Return the reply; raise ``StateSizeError`` if the state is too large for the client to send back."""
        job, state = self._job, self._journal.dumps()
        if job.max_request is not None:
            arguments = job.tool.to_json(job.arguments)
            others = sealed_size(arguments) if job.seals_arguments else len(arguments)
            check_carried(self._journal, state, others, job.max_request)
        return replies.make(asks, state)

    async def given_up(self) -> None:
        """End a call without a reply; without a store, there is nothing to write."""


class StoredRound:
    """A round to run, under the lease on its call, from :meth:`Rounds.open`.

    If ``failure`` is set, the call had failed with it when it was interrupted: only the remaining
    compensations run. ``left`` has the entries of the journal after the last effect.
    """

    def __init__(
        self, rounds: Rounds, job: Job, journal: Journal, lease: Lease, opened: OpenedRound
    ) -> None:
        store, failed = rounds.policy.store, opened.call.failure
        self.recorder = StoreRecorder(store, journal, lease, opened.given)
        self.failure: Exception | None = None if failed is None else load_error(json.loads(failed))
        self.left: Mapping[str, Entry] = {}
        self._rounds = rounds
        self._job = job
        self._journal = journal
        self._number = journal.rounds
        self._lease = lease
        self._asked, self._open = opened.call.asked, {*journal.pending}

    async def returned(self, value: object) -> Finished[Any] | RoundRecord:
        """End the round and the call, or return the earlier end if another worker was first."""
        earlier = await self._end(value_reply(self._job.tool, value), event=CallEvent.RETURN)
        return Finished(value) if earlier is None else earlier

    async def asked(self, asks: tuple[Ask, ...], replies: Replies[R]) -> R | RoundRecord:
        """Store the round's end with ``asks`` open; return the reply, or the record of an earlier end."""
        journal, state = self._journal, self._journal.dumps()
        out = handed_out(self._rounds.policy, journal.line, self._number, state)
        reply = replies.make(asks, out)
        stored = {"kind": replies.kind, "asked": replies.dump(reply)}
        earlier = await self._end(stored, state, asks, event=CallEvent.ASK)
        return reply if earlier is None else earlier

    async def failed(self, error: Exception) -> None:
        await self._end(error_reply(error, self._rounds.foreign), event=CallEvent.RAISE)

    async def given_up(self) -> None:
        """End the call without a reply: its client is gone, and no compensation is left."""
        try:
            await self._lease.move(CallEvent.RAISE)
        except StoreError as error:  # the reaper will find the call, with nothing left to undo
            logger.error("the store failed: %s", error)  # noqa: TRY400 - the sentence is all

    async def _end(
        self,
        reply: dict[str, Any],
        state: str = "",
        asks: tuple[Ask, ...] = (),
        *,
        event: CallEvent,
    ) -> RoundRecord | None:
        policy, now = self._rounds.policy, self._rounds.runtime.clock.now()
        deadline = now + policy.retain
        if event == CallEvent.ASK:
            deadline = self._rounds.expires(self._job, self._journal)
        elif event == CallEvent.RAISE and self._journal.compensations:
            event, deadline = CallEvent.RETRY, now + policy.retry_undo_after  # the reaper retries
        notes = notes_text(now, policy.store.processes.name, asks=asks, entries=self.left)
        asked = self._asked_since(asks, now)
        # Not canonical JSON: the fields of a form keep their order.
        text = json.dumps(reply, separators=(",", ":"))
        mine = RoundRecord(self._number, text, state, notes, asked)
        ended = await self._lease.end_round(mine, event, deadline=deadline)
        return None if ended == mine else ended

    def _asked_since(self, asks: tuple[Ask, ...], now: float) -> float | None:
        """Return the time since which a question to a user is open without a break, or ``None``."""
        asked = {ask.step_id for ask in asks if ask.kind in {"elicit", "url"}}
        if asked & self._open and self._asked is not None:
            return self._asked
        return now if asked else None


@dataclass(frozen=True, slots=True)
class Rounds:
    """Opens the rounds of all calls of one server; all workers of a store need the same time."""

    policy: Durability
    runtime: Runtime
    foreign: ForeignErrors | None

    @asynccontextmanager
    async def open(
        self, job: Job, journal: Journal, answers: Mapping[str, Answer]
    ) -> AsyncGenerator[RoundRecord | StoredRound]:
        """Open the next round of ``journal`` with ``answers``; wait while another worker runs the call.

        An exception that leaves the context is recorded as the call's failure, but not a
        ``StoreError`` or a cancellation: the round can be tried again. If the round forks,
        ``journal`` belongs to another line afterwards.
        """
        store, clock, seconds = self.policy.store, self.runtime.clock, self.policy.lease
        new = None if journal.rounds else self.record_of(job, journal)
        try:
            while True:
                async with Lease(store, journal.line, clock, seconds=seconds) as lease:
                    opened = await self._open(job, journal, answers, lease, new)
                    _require_continuable(job.tool, opened, journal, new)
                    if opened.is_leased:
                        played = await self._begin(job, journal, opened, lease)
                        try:
                            yield played
                        except StoreError:
                            raise
                        except Exception as error:
                            await played.failed(error)
                            raise
                        return
                    if opened.ended is not None and opened.was_given(dump_answers(answers)):
                        await self._postpone_expiry(job, journal, opened.ended)
                        yield opened.ended
                        return
                if not _pass_unanswered(journal, opened, answers):
                    answers = await self._fork(job, journal, opened, answers)
        except UnknownCallError as error:
            raise _refused(journal, "the store has no such call") from error

    async def _open(
        self,
        job: Job,
        journal: Journal,
        answers: Mapping[str, Answer],
        lease: Lease,
        new: CallRecord | None,
    ) -> OpenedRound:
        given = (journal.rounds, [*journal.questions], dump_answers(answers))
        try:
            return await lease.open_round(*given, new)
        except UnknownCallError:
            if not job.begins_lines:
                raise
        await begin_line(self.policy.store, self.record_of(job, journal), journal)
        return await lease.open_round(*given)

    def record_of(self, job: Job, journal: Journal) -> CallRecord:
        """Return the record that the store gets when the line of ``journal`` begins."""
        return CallRecord(
            journal.line,
            job.tool.name,
            job.tool.to_json(job.arguments),
            journal.started,
            self.expires(job, journal),
            principal=job.principal,
            thread=job.thread,
            node=job.node,
            version=self.runtime.version,
        )

    def expires(self, job: Job, journal: Journal) -> float:
        """Return the time at which a call expires if its client does not continue it."""
        until = wakes_at(journal) if job.wakes else None
        return max(self.runtime.clock.now(), until or 0.0) + self.policy.expire_after

    async def _postpone_expiry(self, job: Job, journal: Journal, ended: RoundRecord) -> None:
        """Restart the time until a waiting call expires: its client has repeated a request."""
        store = self.policy.store
        if ended.state and ended == await store.last_round(journal.line):
            deadline = self.expires(job, Journal.loads(ended.state))
            with suppress(UnknownCallError):  # pruned since
                await store.answer(journal.line, {}, by="", deadline=deadline)

    async def _begin(
        self, job: Job, journal: Journal, opened: OpenedRound, lease: Lease
    ) -> StoredRound:
        """Return the round to run, with everything in ``journal`` that the round has stored before.

        A call of another code version gets this version if this code repeats the call's record.
        Otherwise the call is ready for other code, and its time to expiry starts again.
        """
        call, runtime = opened.call, self.runtime
        if not journal.rounds:
            journal.started = call.started  # the time of its first request
        journal.answer(load_answers(opened.answers))
        merge(journal, opened.entries, opened.undone)
        played = StoredRound(self, job, journal, lease, opened)
        if not runtime.is_other(call.version):
            return played
        if await fits(job.tool, job.arguments, journal, runtime, job.host):
            if not await self.policy.store.adopt(journal.line, runtime.version, lease.owner):
                raise StoreError(f"Another worker has taken over call {journal.line!r}. Try again.")
            return played
        logger.warning("call %r waits for code of version %r", journal.line, call.version)
        deadline = max(call.deadline, self.expires(job, journal))
        await lease.move(CallEvent.LEAVE, deadline=deadline)
        raise OtherVersionError(journal.line, call.version)

    async def _fork(
        self, job: Job, journal: Journal, opened: OpenedRound, answers: Mapping[str, Answer]
    ) -> dict[str, Answer]:
        """Refuse different answers to an answered round, or return those of a new line of the call."""
        store = self.policy.store
        if self.policy.forks == "reject":
            raise _refused(journal, f"round {journal.rounds} was answered differently before")
        known = await store.find(journal.line)
        if known is None or is_compensated(known, journal):
            raise _refused(journal, "its effects are undone")
        # Every line that begins later includes the answers of others.
        entered = {step: opened.answers[step] for step in opened.entered}
        answers = {**answers, **load_answers(entered)}
        name_line(journal, answers)
        record = replace(known, call_id=journal.line, deadline=self.expires(job, journal))
        await begin_line(store, record, journal)
        return answers


def _pass_unanswered(journal: Journal, opened: OpenedRound, answers: Mapping[str, Answer]) -> bool:
    """Bring ``journal`` past a round that its client did not answer; return whether that is so.

    ``answers`` to questions that are still open afterwards, unchanged, belong to a later round.
    """
    ended = opened.ended
    if ended is None or not ended.state or not opened.was_given({}):
        return False
    later = Journal.loads(ended.state)
    if any(later.pending.get(step) != journal.pending[step] for step in answers):
        return False
    for each in fields(Journal):
        setattr(journal, each.name, getattr(later, each.name))
    return True


def _require_continuable(
    tool: Tool[Any], opened: OpenedRound, journal: Journal, new: CallRecord | None
) -> None:
    """Check that the call belongs to this request, and is open or has a recorded end."""
    call, problem = opened.call, ""
    # A call that expired, or that a user stopped: some reaper undoes it, now or later.
    is_over = call.state in UNDONE or (call.state == CallState.UNDOING and call.failure is None)
    if new is not None and not _is_same(tool, call, new):
        problem = "another request has used it; send a new key with each request"
    elif is_over and (opened.ended is None or opened.ended.state):
        logger.warning("call %r was refused: it has expired", journal.line)
        raise CallExpiredError(journal.line)
    elif opened.ended is None and not call.state.is_open:
        # No reply: a reaper ran the last compensations, or the client was gone.
        error = json.loads(call.failure or "null")  # null if its client was gone
        if error is not None:
            raise load_error(error)
        if new is None:
            raise _refused(journal, f"it is {call.state}")
        problem = (
            "its call was cancelled, and the effects are undone; to run it again, send another key"
        )
    if problem:
        logger.warning("an idempotency key was refused for call %r: %s", journal.line, problem)
        raise IdempotencyKeyError(problem)


def _is_same(tool: Tool[Any], call: CallRecord, new: CallRecord) -> bool:
    """Return whether the request of ``new``, which calls ``tool``, is the request of ``call``."""
    place = (call.principal, call.thread, call.node, call.tool)
    if place != (new.principal, new.thread, new.node, new.tool):
        return False
    return call.arguments == new.arguments or without_defaults(
        tool, call.arguments
    ) == without_defaults(tool, new.arguments)


def _refused(journal: Journal, why: str) -> InvalidTokenError:
    logger.warning("call %r was refused: %s", journal.line, why)
    return InvalidTokenError()
