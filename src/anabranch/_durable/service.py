"""Runs calls for a server: round by round for clients that hold the state, or live.

Owns what all edges of a server need alike: state to journal and back, and with a store the
promises that a client cannot break by repeating itself. Rendering questions, sealing states and
telling errors belong to the edge.

Without a store the state carries everything, and what one chain of states can guarantee holds: an
effect recorded in a state is not run again from it. A client that repeats an older state makes
the effects after it run again. With a store it does not: the round's reply is given again,
effects of a round that broke off are found, and one worker at a time runs a call.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from anabranch._asking.host import Host
from anabranch._durable.replies import (
    Asked,
    Durability,
    Rendering,
    Returned,
    handed_out,
    referred_to,
    stored_reply,
)
from anabranch._durable.round import DurableRound
from anabranch._durable.store import CallRecord, CallStore, RoundRecord
from anabranch._engine import Answer, Ask, Call, Finished, Journal, Recorder, Sink, run_shielded
from anabranch._opening import Runtime, new_journal, open_call, warn_of_rounds
from anabranch.errors import InvalidTokenError, StoreError, ToolError
from anabranch.tool import Tool

__all__ = ["CallService", "Job"]

logger: logging.Logger = logging.getLogger("anabranch.durable")

R = TypeVar("R")
Answerer = Callable[[Ask], Awaitable[Answer]]


_NO_REPLIES: Rendering[None] = Rendering(
    "live", lambda _asks, _state: None, lambda _reply: {}, lambda _reply, _state: None
)


@dataclass(frozen=True, slots=True)
class Job:
    """What one request asks for.

    Attributes:
        tool: what is called.
        arguments: as its ``validate`` has returned them.
        host: what the client, or this server, can answer.
        sink: where notices go.
        principal: who calls, if that is known.
    """

    tool: Tool[Any]
    arguments: Mapping[str, Any]
    host: Host
    sink: Sink
    principal: str = ""


class CallService:
    """Runs calls. One serves a whole server, whatever its edges."""

    def __init__(self, runtime: Runtime, durability: Durability | None = None) -> None:
        self.runtime = runtime
        self.durability = durability
        self.worker: str = secrets.token_hex(8)
        self._warned: set[str] = set()

    def new(self) -> Journal:
        """Return the journal of a call that begins now."""
        return new_journal(self.runtime)

    async def load(self, state: str) -> Journal:
        """Return the journal of a state that :meth:`run_round` has handed out.

        Raises:
            InvalidTokenError: it refers to something that the store does not have, or another
                release has written it.
        """
        try:
            if state.startswith("@") and self.durability is not None:
                state = await referred_to(self.durability.store, state)
            return Journal.loads(state)
        except ValueError as problem:
            logger.warning("a state was refused: %s", problem)
            raise InvalidTokenError from problem
        except StoreError as error:
            raise self._unavailable(error) from error

    async def run_round(
        self, job: Job, journal: Journal, answers: Mapping[str, Answer], rendering: Rendering[R]
    ) -> Asked[R] | Returned:
        """Give ``answers`` to ``journal`` and run its next round.

        Only answers to open questions count. With a store, a repeated request gets the reply of
        the first.

        Raises:
            InvalidTokenError: the round has been answered differently before, or the call is over.
            ToolError: the store does not answer; nothing is lost.
            Exception: what the call raises.
        """
        taken = journal.to_open(answers)
        if self.durability is None:
            journal.answer(taken)
            return await self._round(job, journal, rendering)
        durable = self._durable_round(self.durability, job, journal, taken, rendering)

        async def play(
            recorder: Recorder, error: Exception | None
        ) -> tuple[Asked[R] | Returned, str]:
            if error is not None:
                await self._unwind(job, durable.journal, recorder, error)
            outcome = await self._round(job, durable.journal, rendering, recorder)
            return outcome, durable.journal.dumps() if isinstance(outcome, Asked) else ""

        try:
            return await durable.run(play)
        except StoreError as error:
            raise self._unavailable(error) from error

    async def find(self, line: str, principal: str) -> CallRecord | None:
        """Return the call of that name, if it is kept here and ``principal`` has made it.

        Raises:
            ToolError: the store does not answer.
        """
        if self.durability is None:
            return None
        try:
            record = await self.durability.store.find(line)
        except StoreError as error:
            raise self._unavailable(error) from error
        return record if record is not None and record.principal == principal else None

    async def waiting(self, line: str, rendering: Rendering[R]) -> tuple[R, RoundRecord] | None:
        """Return the reply with which a kept call waits for answers.

        ``None`` if it does not, or if it waits at another edge.

        Raises:
            ToolError: the store does not answer.
        """
        if self.durability is None:
            return None
        try:
            last = await self.durability.store.last_round(line)
        except StoreError as error:
            raise self._unavailable(error) from error
        if last is None or not last.state:
            return None
        reply = stored_reply(self.durability, rendering, line, last)
        return None if reply is None else (reply, last)

    async def run_live(self, job: Job, journal: Journal, answerer: Answerer) -> object:
        """Run the call to its end while ``answerer`` answers; return the tool's value.

        Raises:
            ToolError: the store does not answer.
            Exception: what the call or ``answerer`` raises.
        """
        if self.durability is None:
            async with self._open(job, journal) as call:
                return await call.drive(answerer)
        durable = self._durable_round(self.durability, job, journal, {}, _NO_REPLIES)

        async def play(
            recorder: Recorder, error: Exception | None
        ) -> tuple[Asked[None] | Returned, str]:
            if error is not None:
                await self._unwind(job, durable.journal, recorder, error)
            async with self._open(job, durable.journal, recorder) as call:
                return Returned(await call.drive(answerer)), ""

        try:
            outcome = await durable.run(play)
        except StoreError as error:
            raise self._unavailable(error) from error
        except asyncio.CancelledError:
            if not journal.compensations:  # its client is gone, and all is undone
                await run_shielded(self._give_up(self.durability.store, journal.line))
            raise
        return outcome.value if isinstance(outcome, Returned) else None

    async def _give_up(self, store: CallStore, line: str) -> None:
        try:
            await store.finish(line, "failed")
        except StoreError as error:  # then the sweep will find it, with nothing left to do
            self._unavailable(error)

    def _durable_round(
        self,
        durability: Durability,
        job: Job,
        journal: Journal,
        answers: Mapping[str, Answer],
        rendering: Rendering[R],
    ) -> DurableRound[R]:
        clock, new = self.runtime.clock, None
        if journal.rounds == 0:
            new = CallRecord(
                journal.line,
                job.tool.name,
                job.tool.to_json(job.arguments),
                journal.started,
                clock.now() + durability.abandon_after,
                principal=job.principal,
            )
        return DurableRound(
            durability, clock, self.worker, job.tool, journal, answers, rendering, new
        )

    def _open(self, job: Job, journal: Journal, recorder: Recorder | None = None) -> Call[Any]:
        return open_call(
            job.tool,
            job.arguments,
            journal,
            host=job.host,
            runtime=self.runtime,
            sink=job.sink,
            recorder=recorder,
        )

    async def _round(
        self,
        job: Job,
        journal: Journal,
        rendering: Rendering[R],
        recorder: Recorder | None = None,
    ) -> Asked[R] | Returned:
        async with self._open(job, journal, recorder) as call:
            outcome = await call.round()
        if isinstance(outcome, Finished):
            return Returned(outcome.value)
        if job.tool.name not in self._warned and warn_of_rounds(job.tool.name, journal):
            self._warned.add(job.tool.name)  # its author knows by now
        return Asked(rendering.render(outcome.asks, self._handed_out(journal)))

    def _handed_out(self, journal: Journal) -> str:
        state = journal.dumps()
        if self.durability is None:
            return state
        return handed_out(self.durability, journal.line, journal.rounds - 1, state)

    async def _unwind(
        self, job: Job, journal: Journal, recorder: Recorder, error: Exception
    ) -> None:
        async with self._open(job, journal, recorder) as call:
            await call.unwind(error)

    def _unavailable(self, error: StoreError) -> ToolError:
        logger.error("the store failed: %s", error)
        return ToolError(
            "This server cannot reach its records just now. Nothing is lost; send the same request"
            " again."
        )
