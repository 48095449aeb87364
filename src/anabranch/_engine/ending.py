"""The ends of a run and of its call: outcomes, undos after a failure, and rounds without progress."""

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
    """The round is over and waits for ``asks``, all open ones in the order of asking."""

    asks: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Stopped:
    """A replay has reached the end of the record; ``at`` lists the next steps and open asks."""

    at: tuple[str, ...]


class Ended(NamedTuple):
    """The end of a round: the open asks, the task of each, and the reason."""

    asks: tuple[Ask, ...]
    asked_by: dict[asyncio.Task[Any], list[str]]
    quiet: Quiet


STALLED = 3
"""Rounds in a row that are cut off without a new answer, question or entry, until the call fails."""

logger: logging.Logger = logging.getLogger("anabranch.engine")


class Progress:
    """Finds whether a round of ``tool`` has added an entry or a question to ``journal``."""

    def __init__(self, journal: Journal, tool: str) -> None:
        self._journal = journal
        self._tool = tool
        self._before = list(journal.entries), list(journal.pending)

    def check(self, quiet: Quiet) -> NoProgressError | None:
        """Log a round that was cut off; return the error if too many rounds brought nothing new."""
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
        entries, pending = map(set, self._before)
        same = entries == journal.entries.keys() and pending == journal.pending.keys()
        journal.stalled = journal.stalled + 1 if same else 0
        if journal.stalled < STALLED:
            return None
        # The caller may read the error; the server's directories are not for the caller.
        place = PurePath(quiet.cut_off).name
        return NoProgressError(list(journal.pending), place, journal.stalled)


class Ending:
    """Ends one call. ``is_settled`` says whether the end is complete, or under way in this object."""

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
        """Return the value of the ended root task, or fail the call with its error."""
        error = await self.error_of(task)
        if error is not None:
            self._log(error)
            await self.fail(error)
        self.is_settled = True
        return task.result()

    def _log(self, error: BaseException) -> None:
        """Log the cause of a failed step that the body has not handled: callers do not see the cause."""
        if isinstance(error, StepFailed) and not error.from_client and error.__cause__ is not None:
            what = "step %r has failed, and call %r with it"
            logger.error(what, error.step_id, self._cursor.journal.line, exc_info=error.__cause__)

    async def error_of(self, task: asyncio.Task[T]) -> BaseException | None:
        scheduler, cursor = self._scheduler, self._cursor
        scheduler.forget_ended()
        # Tasks that the body has left running are cancelled like those that it cancels itself.
        cursor.reached.cancelled.update(strand.path for strand in scheduler.strands.values())
        await scheduler.cancel_and_wait()
        error: BaseException | None = (
            asyncio.CancelledError() if task.cancelled() else task.exception()
        )
        error = None if error is None else as_error(error)
        cursor.check_all_reached(error)
        if cursor.fault is not None and error is not cursor.fault:
            cursor.fault.__cause__ = cursor.fault.__cause__ or error
            error = cursor.fault
        return error

    async def fail(self, error: BaseException) -> NoReturn:
        """Run every undo of the call, then raise ``error``, with a note for each failed undo."""
        self.is_settled = True
        for problem in await run_shielded(self._undo_all(error)):
            error.add_note(f"An undo failed as well: {problem!r}")
        raise error

    async def leave(self, *, cold: bool) -> None:
        """End a call whose body still runs; undo it, unless another attempt continues the round."""
        if self._records.recorder is not None and cold:  # another attempt continues this round
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
        """Run the undos; after a refused replay, only those of this run's own effects."""
        if not isinstance(self._cursor.fault, NonDeterminismError):
            return await self._compensations.run(this_round_only=this_round_only)
        # The undos of the journal may be another tool's:
        # test_claims_of_a_refused_journal_are_not_undone.
        problems = await self._compensations.run(this_round_only=True)
        journal = self._cursor.journal
        if left := [due.step_id for due in journal.compensations]:
            what = "the record of call %r differs from its tool, so these steps are not undone: %s"
            logger.error(what, journal.line, left)
        return problems
