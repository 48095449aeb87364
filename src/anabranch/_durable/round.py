"""One round of a call that is kept in a store.

Owns the promises that need memory on the server: a repeated request gets the reply that was made,
a round that broke off is taken up where it was, and a round that was answered is not answered
differently. What a round does is ``service.py``'s.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from anabranch._durable.entry_text import FAILED, StoreRecorder, answers_id, answers_text, merge
from anabranch._durable.lease import Lease
from anabranch._durable.replies import (
    Asked,
    Durability,
    Rendering,
    Returned,
    digest,
    latest_number,
    stored_reply,
)
from anabranch._durable.store import CallRecord, OpenedRound, RoundRecord
from anabranch._engine import Answer, Journal, codec_of
from anabranch._engine.clock import Clock
from anabranch.errors import (
    InvalidTokenError,
    SerializationError,
    StoreError,
    ToolError,
    UnknownCallError,
    error_from_json,
    error_to_json,
)
from anabranch.tool import Tool

__all__ = ["DurableRound", "Play"]

logger: logging.Logger = logging.getLogger("anabranch.durable")

R = TypeVar("R")

Play = Callable[[StoreRecorder, Exception | None], Awaitable["tuple[Asked[R] | Returned, str]"]]
"""Runs the round, recorded; or unwinds the call with an error. Returns the state in full, too."""


class DurableRound(Generic[R]):
    """One round of one call, for one request.

    Args:
        policy: how the store is used.
        clock: time.
        worker: this process.
        tool: what is called.
        journal: before the answers. If it forks, another line.
        answers: to its open questions.
        rendering: of the replies.
        new: what the call begins as; for its first round.
    """

    def __init__(
        self,
        policy: Durability,
        clock: Clock,
        worker: str,
        tool: Tool[Any],
        journal: Journal,
        answers: Mapping[str, Answer],
        rendering: Rendering[R],
        new: CallRecord | None = None,
    ) -> None:
        self.journal = journal
        self._policy = policy
        self._store = policy.store
        self._clock = clock
        self._worker = worker
        self._tool = tool
        self._answers = answers
        self._rendering = rendering
        self._new = new
        self._given = answers_text(answers)
        self._digest = digest(self._given)

    async def run(self, play: Play[R]) -> Asked[R] | Returned:
        """Run the round with ``play``, or give the outcome that it has had.

        Raises:
            InvalidTokenError: it has been given other answers before, or the call is over.
            StoreError: the store failed; what has happened stays, and the round can be tried again.
            Exception: what ``play`` raises.
        """
        try:
            return await self._run(play)
        except UnknownCallError as error:
            logger.warning("call %r was refused: it is unknown", self.journal.line)
            raise InvalidTokenError from error

    async def _run(self, play: Play[R]) -> Asked[R] | Returned:
        number, line = self.journal.rounds, self.journal.line
        async with self._lease(line) as lease:
            opened = await lease.open_round(number, self._new)
            if opened.ended is None:
                if opened.entries.get(answers_id(number), self._given) == self._given:
                    return await self._play(play, opened, lease)
            elif opened.ended.answers == self._digest:
                await self._wait_anew(opened.ended)
                return self._again(opened.ended)
        await self._fork()
        return await self._run(play)

    def _lease(self, line: str) -> Lease:
        return Lease(
            self._store, line, self._clock, worker=self._worker, seconds=self._policy.lease
        )

    async def _play(self, play: Play[R], opened: OpenedRound, lease: Lease) -> Asked[R] | Returned:
        if opened.call.status != "open":
            logger.warning("call %r was refused: it is %s", self.journal.line, opened.call.status)
            raise InvalidTokenError
        number, stored = self.journal.rounds, opened.entries
        self.journal.answer(self._answers)
        merge(self.journal, stored)
        recorder = StoreRecorder(self._store, self.journal.line, number, self._given, lease.check)
        failure = json.loads(stored[FAILED]) if FAILED in stored else None
        try:
            error = _raised_before(failure) if FAILED in stored else None
            outcome, state = await play(recorder, error)
        except StoreError:
            raise
        except Exception as error:
            told = self._rendering.dump_error(error)
            reply: dict[str, Any] = {"told": told} if told else {"error": error_to_json(error)}
            await self._end(lease, number, reply, "", "failed")
            raise
        if isinstance(outcome, Asked):
            reply = {"kind": self._rendering.kind, "asked": self._rendering.dump(outcome.reply)}
            ended = await self._end(lease, number, reply, state, "open")
        else:
            ended = await self._end(lease, number, self._value(outcome.value), "", "done")
        return outcome if ended is None else self._again(ended)

    async def _end(
        self, lease: Lease, number: int, reply: dict[str, Any], state: str, status: str
    ) -> RoundRecord | None:
        """Write how the round ended. Return how it had ended before, if it had.

        Raises:
            StoreError: it had been given other answers; another worker was first.
        """
        policy = self._policy
        wait = policy.abandon_after if status == "open" else policy.keep
        if status == "failed" and self.journal.compensations:
            status, wait = "open", policy.retry_undo_after  # the sweep will try them again
        # Not the canonical spelling: a form's fields come again in the order in which they came.
        mine = RoundRecord(number, self._digest, json.dumps(reply, separators=(",", ":")), state)
        ended = await lease.end_round(mine, deadline=self._clock.now() + wait, status=status)
        if ended.answers != mine.answers:
            raise StoreError(f"Call {self.journal.line!r} was taken over, with other answers.")
        return None if ended == mine else ended

    def _value(self, value: object) -> dict[str, Any]:
        try:
            return {"value": codec_of(self._tool.returned_by).encode(self._tool.name, value)}
        except SerializationError:
            return {}

    def _again(self, earlier: RoundRecord) -> Asked[R] | Returned:
        reply = json.loads(earlier.reply)
        if "asked" in reply:
            asked = stored_reply(self._policy, self._rendering, self.journal.line, earlier)
            if asked is None:
                logger.warning("call %r was refused: it is another edge's", self.journal.line)
                raise InvalidTokenError
            return Asked(asked)
        if "told" in reply:
            raise self._rendering.load_error(reply["told"])
        if "error" in reply:
            raise _raised_before(reply["error"])
        if "value" in reply:
            codec = codec_of(self._tool.returned_by)
            return Returned(codec.decode(self._tool.name, reply["value"]))
        raise ToolError("This call has ended, and its result cannot be given a second time.")

    async def _wait_anew(self, earlier: RoundRecord) -> None:
        """The client is there still: if its call waits for it, it may take its time again."""
        last = await self._store.last_round(self.journal.line)
        if earlier.state and earlier == last:
            deadline = self._clock.now() + self._policy.abandon_after
            await self._store.finish(self.journal.line, "open", deadline=deadline)

    async def _fork(self) -> None:
        """Another answer to a round that has been answered: refuse it, or begin a line there."""
        journal = self.journal
        if self._policy.forks == "reject":
            logger.warning(
                "call %r: round %d was answered differently before", journal.line, journal.rounds
            )
            raise InvalidTokenError
        known = await self._store.find(journal.line)
        if known is None or await self._is_undone(known):
            logger.warning("call %r was refused: what it has done is undone", journal.line)
            raise InvalidTokenError
        journal.fork += f"~{journal.rounds}.{self._digest[:12]}"
        journal.compensations.clear()  # what was done before the fork is the first line's to undo
        deadline = self._clock.now() + self._policy.abandon_after
        await self._store.begin(
            replace(known, call_id=journal.line, deadline=deadline, status="open")
        )
        before = RoundRecord(journal.rounds - 1, "", "{}", journal.dumps())
        await self._store.end_round(journal.line, before, deadline=None)

    async def _is_undone(self, known: CallRecord) -> bool:
        """Whether what was done up to here has been taken back, or is just being."""
        if known.status == "abandoned":
            return True
        if not self.journal.compensations:
            return False
        if known.status == "failed":
            return True
        number = await latest_number(self._store, known.call_id)
        return FAILED in await self._store.entries(known.call_id, number)


def _raised_before(error: dict[str, Any] | None) -> Exception:
    if error is None:  # masked towards the client the first time, and so again
        return RuntimeError("the tool failed when it was first run")
    return error_from_json(error)
