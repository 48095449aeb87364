"""The ends of a run and of its call: outcomes, undos after a failure, and progress of rounds that are cut off."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from anabranch._aio import run_shielded
from anabranch._engine.compensations import Compensations
from anabranch._engine.cursor import ReplayCursor
from anabranch._engine.functions import as_error
from anabranch._engine.journal import Ask, Journal
from anabranch._engine.quiescence import Quiet
from anabranch._engine.recorder import Records
from anabranch._engine.scheduler import Scheduler
from anabranch.errors import NonDeterminismError, NoProgressError, StepFailed, error_to_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """The body has returned ``value``."""

    value: T


@dataclass(frozen=True, slots=True)
class Waiting:
    """The round is over; all open asks are here, in the order in which they were asked."""

    asks: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Stopped:
    """The record is used up; ``at`` has the ids of the steps that come next, open asks among them."""

    at: tuple[str, ...]


class Ended(NamedTuple):
    """How a round has ended: with which open asks, who asked what, and why then."""

    asks: tuple[Ask, ...]
    asked_by: dict[asyncio.Task[Any], list[str]]
    quiet: Quiet


STALLED = 3
"""How many rounds in a row may be cut off without a new answer, question or entry."""

logger: logging.Logger = logging.getLogger("anabranch.engine")


class Progress:
    """What one round of the call of ``tool`` adds to ``journal``."""

    def __init__(self, journal: Journal, tool: str) -> None:
        self._journal = journal
        self._tool = tool
        self._before = self._known()

    def _known(self) -> tuple[list[str], list[str]]:
        return list(self._journal.entries), list(self._journal.pending)

    def check(self, quiet: Quiet) -> NoProgressError | None:
        """Report a round that was cut off; return the error if there were too many."""
        journal = self._journal
        if quiet.cut_off is None:
            journal.stalled = 0
            return None
        logger.warning(
            "tool %r, call %r: a question was open, and %s was busy for too long; the round was"
            " cut off, and this work is done again in the next one. Put it into ctx.step, or raise"
            " patience=.",
            self._tool,
            journal.line,
            quiet.cut_off,
        )
        known = [set(now) for now in self._known()]
        same = known == [set(before) for before in self._before]
        journal.stalled = journal.stalled + 1 if same else 0
        if journal.stalled < STALLED:
            return None
        # The caller may read the error; the server's directories are not for the caller.
        place = PurePath(quiet.cut_off).name
        return NoProgressError(list(journal.pending), place, journal.stalled)


class Ending:
    """Ends one call.

    Args:
        cursor: what was recorded, and whether the run has passed it.
        scheduler: the strands, which are cancelled first.
        records: where a failure is written.
        compensations: what is undone.

    Attributes:
        is_settled: nothing is left to be ended, or this object is at it.
    """

    def __init__(
        self,
        cursor: ReplayCursor,
        scheduler: Scheduler,
        records: Records,
        compensations: Compensations,
    ) -> None:
        self.is_settled: bool = False
        self._cursor = cursor
        self._scheduler = scheduler
        self._records = records
        self._compensations = compensations

    async def conclude(self, task: asyncio.Task[T]) -> T:
        """Turn the ended root task into its value or its error."""
        error = await self.error_of(task)
        if error is not None:
            self._log(error)
            await self.fail(error)
        self.is_settled = True
        return task.result()

    def _log(self, error: BaseException) -> None:
        """Log why a step has failed, if the body has not handled it: callers do not learn that."""
        if isinstance(error, StepFailed) and not error.from_client and error.__cause__ is not None:
            what = "step %r has failed, and call %r with it"
            logger.error(what, error.step_id, self._cursor.journal.line, exc_info=error.__cause__)

    async def error_of(
        self, task: asyncio.Task[T], *, asks_all: bool = False
    ) -> BaseException | None:
        """Return with what the ended root task has failed, if it has; ``asks_all`` as the cursor's."""
        scheduler, cursor = self._scheduler, self._cursor
        scheduler.forget_ended()
        # Tasks that the body has left running are cancelled like those that it cancels itself.
        cursor.reached.cancelled.update(strand.path for strand in scheduler.strands.values())
        await scheduler.cancel_and_wait()
        error: BaseException | None = (
            asyncio.CancelledError() if task.cancelled() else task.exception()
        )
        error = None if error is None else as_error(error)
        cursor.check_all_reached(error, asks_all=asks_all)
        if cursor.fault is not None and error is not cursor.fault:
            cursor.fault.__cause__ = cursor.fault.__cause__ or error
            error = cursor.fault
        return error

    async def fail(self, error: BaseException) -> NoReturn:
        """Undo what the call has done.

        Raises:
            BaseException: ``error``, with a note for each undo that has failed.
        """
        self.is_settled = True
        for problem in await run_shielded(self._undo_all(error)):
            error.add_note(f"An undo failed as well: {problem!r}")
        raise error

    async def leave(self, *, cold: bool) -> None:
        """End a call whose body still runs, as :class:`Call` says of leaving its context."""
        if self._records.recorder is not None and cold:  # this round will be taken up again
            await self._scheduler.finish_effects()
            await self._scheduler.cancel_and_wait()
            return
        await self._scheduler.cancel_and_wait()
        if self._scheduler.failure is not None:
            return
        try:
            await self._records.failing(None)
            await self._compensate(this_round_only=cold)
        except Exception:  # the recorder's; the caller leaves for a reason of its own
            line = self._cursor.journal.line
            logger.exception("call %r was left, and could not be undone yet", line)

    async def _undo_all(self, error: BaseException) -> list[BaseException]:
        await self._records.failing(error_to_json(error))
        return await self._compensate()

    async def _compensate(self, *, this_round_only: bool = False) -> list[BaseException]:
        """Run the compensations; of a refused replay, only those of what this run has done.

        A journal that does not fit the tool does not say what the tool has done.
        """
        if not isinstance(self._cursor.fault, NonDeterminismError):
            return await self._compensations.run(this_round_only=this_round_only)
        problems = await self._compensations.run(this_round_only=True)
        journal = self._cursor.journal
        if left := [due.step_id for due in journal.compensations]:
            what = "call %r does not fit its tool, so these steps are not undone: %s"
            logger.error(what, journal.line, left)
        return problems
