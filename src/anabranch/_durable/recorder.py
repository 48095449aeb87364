"""The recorder of one round: it writes each effect before the body sees its value, and the round's end."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch._durable.entries import dump_entry, load_entry, notes_text
from anabranch._durable.job import ForeignErrors, Job, Replies
from anabranch._durable.lease import Lease
from anabranch._durable.states import check_carried, handed_out, sealed_size
from anabranch._durable.store import CallStore, OpenedRound, RoundRecord
from anabranch._durable.transitions import CallEvent
from anabranch._engine import Ask, Compensation, Entry, Finished, Journal, canonical, codec_of
from anabranch.errors import (
    IdempotencyKeyError,
    InvalidTokenError,
    SerializationError,
    StoreError,
    ToolError,
    UnknownCallError,
    error_from_json,
    error_id,
    error_to_json,
    with_error_id,
)
from anabranch.tool import Tool

if TYPE_CHECKING:
    from anabranch._durable.round import Rounds

logger: logging.Logger = logging.getLogger("anabranch.durable")

R = TypeVar("R")


def value_reply(tool: Tool[Any], value: object) -> dict[str, Any]:
    """Return the stored reply of a round that returned ``value``; empty if JSON cannot hold it."""
    try:
        return {"value": codec_of(tool.returned_by).encode(tool.name, value)}
    except SerializationError:
        return {}


def error_reply(error: Exception, foreign: ForeignErrors | None) -> dict[str, Any]:
    dumped = None if foreign is None else foreign.dump(error)
    if dumped is not None:
        return {"foreign": dumped}
    written = error_to_json(error)
    return {"error": written} | ({} if written else {"error_id": error_id(error)})


def repeat_value(
    tool: Tool[Any], line: str, record: RoundRecord, foreign: ForeignErrors | None
) -> Finished[Any]:
    """Return the value of an ended call, or raise its error; refuse a round of another edge."""
    stored = json.loads(record.reply)
    if "asked" in stored:
        logger.warning("call %r was refused: it waits at another edge", line)
        if record.number == 0:  # the request has a key, and no token
            raise IdempotencyKeyError(
                "another kind of request started the call; repeat that request"
            )
        raise InvalidTokenError
    if foreign is not None and "foreign" in stored:
        raise foreign.load(stored["foreign"])
    if "error" in stored:
        raise with_error_id(load_error(stored["error"]), stored.get("error_id", ""))
    if "value" not in stored:
        raise ToolError(
            "This call has ended. Its result could not be stored, so it cannot be sent again."
        )
    return Finished(codec_of(tool.returned_by).decode(tool.name, stored["value"]))


def load_error(error: dict[str, Any] | None) -> Exception:
    """Return the error in a stored reply; in place of a masked error, a ``RuntimeError``."""
    if error is None:
        return RuntimeError("the tool failed when it was first run")
    return error_from_json(error)


T = TypeVar("T")


class StoreRecorder:
    """Writes the actions of one round to a store, under a lease on the call."""

    def __init__(self, store: CallStore, journal: Journal, lease: Lease, given: str = "") -> None:
        self.check = lease.check
        self._lease = lease
        self._store = store
        self._line = journal.line
        self._number = journal.rounds
        self._given = given
        self._deadlines = journal.deadlines
        self._written_deadlines = dict(journal.deadlines)

    async def record(
        self, entries: Mapping[str, Entry], compensations: Mapping[str, Compensation]
    ) -> dict[str, Entry]:
        """Write ``entries``; return what the store then holds: for each id, the first entry.

        The fact ``unrecorded`` of a ``StoreError`` lists the actions that happened without a
        record, and the client may see its message.
        """
        if not entries:
            return {}
        done = {
            f"step {step_id!r} (idempotency key {entry.key!r})"
            for step_id, entry in entries.items()
            if entry.key
        }
        # A branch's time counts from its beginning, even if another worker continues. Only entries
        # that were recorded since show that it has begun.
        now = dict(self._deadlines)
        news = dict(now.items() - self._written_deadlines.items())
        texts = {
            step_id: dump_entry(entry, compensations.get(step_id), {} if number else news)
            for number, (step_id, entry) in enumerate(entries.items())
        }
        write = partial(self._store.record, self._line, self._number, texts, given=self._given)
        stored = await self._written(write, ", ".join(sorted(done)))
        first = next(iter(texts))
        if stored[first] == texts[first]:  # another worker's entry lacks these deadlines
            self._written_deadlines = now
        return {step_id: load_entry(stored[step_id]).entry for step_id in entries}

    async def failing(self, error: dict[str, Any] | None) -> None:
        """Write that the call has failed; raise ``StoreError`` if another worker has the call.

        That worker continues the call, so this one must not undo the effects.
        """
        if not await self._store.fail(self._line, canonical(error), self._lease.owner):
            raise StoreError(f"Another worker has the lease on call {self._line!r}. Try again.")

    async def undone(self, step_id: str) -> None:
        write = partial(self._store.undone, self._line, step_id)
        await self._written(write, f"the undo of step {step_id!r}")

    async def _written(self, write: Callable[[], Awaitable[T]], done: str) -> T:
        """Return the result of ``write``; an error of the store names the effect ``done``."""
        try:
            return await (self._lease.while_held(write) if done else write())
        except UnknownCallError:
            raise
        except StoreError as error:
            if done:
                raise StoreError(
                    "This server cannot reach its store just now, and could not record this"
                    f" work: {done}. Send the same request again; the work may then happen a second"
                    " time.",
                    unrecorded=done,
                ) from error
            raise


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
