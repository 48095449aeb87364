"""The service that runs the calls of a server: round by round, or live while the client answers.

Without a store, a client that repeats an older state makes later effects run again. With a store,
no effect runs again: the service repeats the round's reply, and lets one worker at a time run a
call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NoReturn, TypeVar

from anabranch._aio import pause, run_shielded
from anabranch._durable.job import Durability, Job
from anabranch._durable.recorder import ForeignErrors, Replies, repeat_value
from anabranch._durable.round import Rounds, StoredRound, UnrecordedRound
from anabranch._durable.states import (
    MAX_STATE,
    StateSizeError,
    StoredCalls,
    digest,
    store_errors_mapped,
)
from anabranch._durable.store import RoundRecord
from anabranch._engine import (
    PATIENCE,
    Answer,
    Call,
    Finished,
    Journal,
    Waiting,
    canonical,
    hold_sleeps,
    is_asleep,
    wakes_at,
)
from anabranch._telemetry import ObservedRound, observe_call
from anabranch.errors import ToolError
from anabranch.tool import (
    Runtime,
    Tool,
    new_journal,
    open_call,
    patience_of,
    warn_of_rounds,
    without_defaults,
)

logger: logging.Logger = logging.getLogger("anabranch.durable")

COME_BACK = 5
"""Seconds after which a refused client may call again, when too many calls run."""

R = TypeVar("R")
T = TypeVar("T")
Drive = Callable[[Call[Any]], Awaitable[object]]
_Opened = StoredRound | UnrecordedRound


class RunningCalls:
    """The calls that run in this process, which a stopping server ends."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Future[None], asyncio.Task[Any]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @contextmanager
    def track(self) -> Generator[None]:
        """Count the current task as a running call until the block ends."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A call must run in an asyncio task.")
        ended: asyncio.Future[None] = task.get_loop().create_future()
        self._tasks[ended] = task
        try:
            yield
        finally:
            del self._tasks[ended]
            ended.set_result(None)

    async def end(self, grace: float) -> None:
        """Cancel the calls of this event loop, and wait ``grace`` seconds for their compensations.

        Slower compensations continue as long as the process lives.
        """
        loop = asyncio.get_running_loop()
        here = {ended: task for ended, task in self._tasks.items() if task.get_loop() is loop}
        if not here:
            return
        logger.warning(
            "the server stops: %d calls are ended and undone within %g s", len(here), grace
        )
        for task in here.values():
            task.cancel()
        _, left = await asyncio.wait(here, timeout=grace)
        if left:
            logger.error("%d calls were not undone within %g s", len(left), grace)


class CallService:
    """Runs the calls of one server, for all its edges; without ``durability``, nothing is stored.

    ``foreign`` has the errors of the server's protocol that a tool may raise, and ``max_state`` the
    maximum bytes of all answers of a call. No new call begins while ``max_running`` calls or rounds
    run.
    """

    def __init__(
        self,
        runtime: Runtime,
        durability: Durability | None = None,
        foreign: ForeignErrors | None = None,
        max_state: int = MAX_STATE,
        max_running: int | None = None,
    ) -> None:
        self.runtime = runtime
        self.durability = durability
        self.stored: StoredCalls = StoredCalls(durability, max_state)
        self.running: RunningCalls = RunningCalls()
        self._foreign = foreign
        self._max_state = max_state
        self._max_running = max_running
        self._warned: set[str] = set()

    def new(self) -> Journal:
        """Return the journal of a call that begins now."""
        return new_journal(self.runtime)

    def keyed(
        self, key: str, principal: str, tool: Tool[Any], arguments: Mapping[str, Any]
    ) -> Journal:
        """Return the journal of a new call with an idempotency key, or of the same call again.

        Without a store, which could compare them, the name also follows from the tool and the
        arguments.
        """
        named = [principal, key]
        if self.durability is None:
            named += [tool.name, without_defaults(tool, tool.to_json(arguments))]
        return new_journal(self.runtime, f"call_{digest(canonical(named))}")

    async def run_round(
        self, job: Job, journal: Journal, answers: Mapping[str, Answer], replies: Replies[R]
    ) -> Finished[Any] | R:
        """Run the next round of ``journal`` with ``answers``; return the value, or the reply that asks.

        Raises:
            InvalidTokenError: if the round was answered differently before, or the call has ended.
            OtherVersionError: if the call waits for a server with the code that started it.
            ToolError: if the store does not answer, the answers are too long, or too many calls run;
                nothing is lost. Or if the state is too large for the client; the call is undone.
        """
        await self._check_running(journal)
        taken = journal.to_open(answers)
        if taken and journal.size_with(taken) > self._max_state:
            raise ToolError(
                f"The answers of this call together exceed the server's limit of {self._max_state}"
                " bytes. Answer the open questions more briefly."
            )
        ended: Finished[Any] | R | RoundRecord
        with self.running.track(), observe_call(job.tool.name, journal, taken) as seen:
            async with self._open_round(job, journal, taken) as opened:
                if isinstance(opened, RoundRecord):
                    ended = opened
                else:
                    ended = await self._play(job, journal, opened, replies, seen)
            if isinstance(ended, RoundRecord):
                seen.outcome = "repeated"
        if not isinstance(ended, RoundRecord):
            return ended
        reply = self.stored.repeated(replies, journal.line, ended)
        if reply is not None:
            return reply
        return repeat_value(job.tool, journal.line, ended, self._foreign)

    async def hold(self, tool: Tool[Any], journal: Journal) -> None:
        """Wait while a call sleeps, at most a round's patience, to slow its client down."""
        if is_asleep(journal) and (until := wakes_at(journal)) is not None:
            clock = self.runtime.clock
            patience = patience_of(self.runtime, tool) or PATIENCE
            await pause(clock, min(until - clock.now(), patience))

    async def run_live(self, job: Job, journal: Journal, drive: Drive) -> object:
        """Run the call to its end, driven by ``drive``; return the tool's value."""
        await self._check_running(journal)
        ended: Finished[Any] | RoundRecord
        with self.running.track(), observe_call(job.tool.name, journal) as seen:
            async with self._open_round(job, journal, {}) as opened:
                if isinstance(opened, RoundRecord):
                    ended = opened
                else:
                    ended = await self._run_to_its_end(job, journal, opened, drive)
            if isinstance(ended, RoundRecord):
                seen.outcome = "repeated"
        if isinstance(ended, RoundRecord):
            ended = repeat_value(job.tool, journal.line, ended, self._foreign)
        return ended.value

    async def _run_to_its_end(
        self, job: Job, journal: Journal, opened: _Opened, drive: Drive
    ) -> Finished[Any] | RoundRecord:
        try:
            return await opened.returned(await self._run(job, journal, opened, drive))
        except asyncio.CancelledError:
            # The client is gone, and every compensation has run. The lease is still held: a repeated
            # request under the call's key must not find a call that has not ended.
            if not journal.compensations:
                await run_shielded(opened.given_up())
            raise

    async def _check_running(self, journal: Journal) -> None:
        """Raise ``ToolError`` if too many calls run; a call that has begun before may always continue."""
        most = self._max_running
        if most is None or journal.rounds or len(self.running) < most:
            return
        if self.durability is not None:
            with store_errors_mapped():
                if await self.durability.store.find(journal.line) is not None:
                    return
        raise ToolError(
            f"This server already runs {most} calls, its maximum. Nothing was done: call the tool"
            f" again in {COME_BACK} s."
        )

    async def undo(self, job: Job, journal: Journal) -> None:
        """Run the remaining compensations of a call without a store, after an interrupted round."""
        if not journal.compensations:
            return
        with suppress(InterruptedError):
            await self._unwind(job, journal, InterruptedError("the call was interrupted"))

    async def _unwind(self, job: Job, journal: Journal, error: Exception) -> NoReturn:
        round_ = UnrecordedRound(job, journal, error)
        await self._run(job, journal, round_, lambda call: call.round())
        raise error

    @asynccontextmanager
    async def _open_round(
        self, job: Job, journal: Journal, answers: Mapping[str, Answer]
    ) -> AsyncGenerator[_Opened | RoundRecord]:
        if self.durability is None:
            journal.answer(answers)
            yield UnrecordedRound(job, journal)
            return
        rounds = Rounds(self.durability, self.runtime, self._foreign)
        with store_errors_mapped():
            async with rounds.open(job, journal, answers) as opened:
                yield opened

    async def _play(
        self, job: Job, journal: Journal, opened: _Opened, replies: Replies[R], seen: ObservedRound
    ) -> Finished[Any] | R | RoundRecord:
        async def play(call: Call[Any]) -> Finished[Any] | Waiting:
            try:
                return await call.round()
            except asyncio.CancelledError:
                if job.cuts_effects():
                    await run_shielded(call.scheduler.cancel_and_wait())
                raise

        outcome = await self._run(job, journal, opened, play)
        if isinstance(outcome, Finished):
            return await opened.returned(outcome.value)
        if job.tool.name not in self._warned and warn_of_rounds(job.tool.name, journal):
            self._warned.add(job.tool.name)  # its author has had one warning
        seen.asks(journal)
        try:
            return await opened.asked(outcome.asks, replies)
        except StateSizeError as error:
            await self._unwind(job, journal, ToolError(str(error)))

    async def _run(
        self, job: Job, journal: Journal, opened: _Opened, run: Callable[[Call[Any]], Awaitable[T]]
    ) -> T:
        call = open_call(
            job.tool,
            job.arguments,
            journal,
            host=job.host,
            runtime=self.runtime,
            sink=job.sink,
            recorder=opened.recorder,
        )
        call.branches.watch = job.watch
        if job.answers_first:
            hold_sleeps(journal)
        try:
            async with call:
                if opened.failure is not None:
                    await call.unwind(opened.failure)
                return await run(call)
        finally:  # after the running effects are written
            opened.left = call.cursor.take_added()
