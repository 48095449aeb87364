"""One conversation as it is led over the web: one turn at a time, watched by any number of pages.

What a person does begins a run, which is stored with what it needs; then a worker is called, in this
process or in another, and does the run's work (``run_work.py``). Who has begun it only follows its
events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress

from anabranch._aio import run_shielded
from anabranch._durable.run_events import EventId
from anabranch._telemetry import trace_here
from anabranch.agents import (
    Agent,
    FrontEnd,
    FrontEndResult,
    QuestionAnsweredError,
    QuestionExpiredError,
    end_of,
)
from anabranch.chat._web.answer_checks import ANSWERED, TOO_LATE, AnswerChecks, AnswerRefusedError
from anabranch.chat._web.live_turn import LiveTurn, current_turn, stop_run
from anabranch.chat._web.log_writer import LogWriter
from anabranch.chat._web.open_run import OpenRun
from anabranch.chat._web.pending_questions import Questions
from anabranch.chat._web.run_input import HEAD, Message, Place, started
from anabranch.chat._web.run_work import RunWork
from anabranch.chat._web.thread_lease import BusyError, ThreadLease
from anabranch.chat._web.thread_log import ThreadLog
from anabranch.chat._web.turn_work import TurnWork
from anabranch.engines import Engine, Wake
from anabranch.errors import AnabranchError, StoreError, ToolError
from anabranch.messages import ElicitReply, FileBlock
from anabranch.tree import Thread

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

RUNS = "anabranch.chat"
"""What a worker must have to take the runs of conversations: the name stands in for a tool's."""


class Conversation:
    """The conversation in one thread.

    Args:
        agent: leads it.
        questions: reads its questions.
        thread: the thread.
        writer: stores its events.
        engine: calls the workers.
        works_here: whether the worker that ``engine`` calls is always this process, which then
            holds on to the right to a run that it has begun.

    Attributes:
        thread_id: the thread.
        log: what happens in it.
    """

    def __init__(
        self,
        agent: Agent,
        questions: Questions,
        thread: Thread,
        writer: LogWriter,
        engine: Engine,
        *,
        works_here: bool = False,
    ) -> None:
        self.thread_id = thread.id
        self.log: ThreadLog = ThreadLog(writer, thread.id)
        version = agent.dependencies.version
        self._right = ThreadLease(writer.events, self.log, thread.id, writer.clock, version)
        self._agent = agent
        self._questions = questions
        self._checks = AnswerChecks(agent, questions, thread.id)
        self._work = TurnWork(agent, thread.id)
        self._runs = RunWork(agent, questions, self.log, self._right, self._wake)
        self._engine = engine
        self._share = thread.owner or ""
        self._lock = asyncio.Lock()
        self._works_here = works_here
        self._new: LiveTurn | None = None
        """A turn that was begun here, and that no worker has taken yet."""

    async def is_running(self) -> bool:
        """Whether a run has not ended, in any process: one that waits at a question has."""
        return await self._right.open_run() is not None

    async def position(self) -> EventId:
        """Return the id of the event after which a reader of the tree goes on.

        It is the last one; or, while a run is in progress, the one before that run, whose events
        are not all in the tree.
        """
        run = await self._right.open_run()
        begun = None if run is None else await self.log.begun(run.run_id)
        return await self.log.id_of(begun)

    @property
    def is_idle(self) -> bool:
        """Whether nothing happens in it in this process."""
        in_progress = not self._runs.is_idle or self._new or self._lock.locked()
        return not in_progress and self.log.is_written

    @property
    def is_untaken(self) -> bool:
        """Whether a run has begun for this process, which is at work on others."""
        return self._new is not None

    # -- what a person does ------------------------------------------------------------------

    async def say(
        self,
        text: str,
        run_id: str,
        *,
        at: Place = HEAD,
        files: Sequence[FileBlock] = (),
        front_end: FrontEnd | None = None,
        results: Mapping[str, FrontEndResult] | None = None,
    ) -> int:
        """Begin a turn with a message of the person; return after which event it begins.

        The message follows the node ``at``; ``None`` makes it another beginning of the thread. The
        thread has its ``files`` already. The same run again is the same message: its events are sent
        once more.

        Open questions are left first: their tools read that they were cancelled. So are calls of
        the front end's tools without ``results``, which are given by their questions. A message
        ``/TOOL name=value …`` calls a tool without the model.

        Raises:
            BusyError: a turn is running.
            ToolError: the message is blank, or ``at`` is no node of the thread.
            SessionError: the arguments of a tool cannot be read.
            InvalidArgumentsError: they do not fit.
        """
        message = Message(text, at, tuple(files))
        await self._work.check(message)
        async with self._lock:
            turn = self._new_turn()
            try:
                after = await turn.begin(started(self.log.shown_id, run_id, message, front_end))
                if turn.run is not None and results:
                    await self._add_results(turn, results)
                return after
            finally:
                await run_shielded(self._call_worker(turn, run_id))

    async def retry(self, node_id: str, run_id: str) -> None:
        """Begin a turn again that ended at a node without a reply: from the last whole step.

        Raises:
            BusyError: a turn is running.
            ToolError: no turn ended there.
        """
        async with self._lock:
            await self._work.check_retry(node_id)
            turn = self._new_turn()
            try:
                await turn.begin(started(self.log.shown_id, run_id))
                try:
                    await self._work.go_back(node_id)
                except ToolError:  # another process has tried it again since
                    await turn.succeed(is_empty=True)
                    raise
            finally:
                await run_shielded(self._call_worker(turn, run_id))

    async def _add_results(self, turn: LiveTurn, results: Mapping[str, FrontEndResult]) -> None:
        """Store results of tools that a message follows, unless there are others meanwhile."""
        current_turn.set(turn)
        for question_id, result in results.items():
            with suppress(QuestionAnsweredError, QuestionExpiredError):
                await self._agent.add_answer(question_id, result)

    async def answer(
        self,
        replies: Mapping[str, ElicitReply | FrontEndResult],
        run_id: str,
        front_end: FrontEnd | None = None,
    ) -> int | None:
        """Answer questions, all or none; return after which event their tools go on.

        A turn that still runs, of another tool beside them, takes the answers up. If the questions
        had these same answers before, nothing happens: the same run again is sent its events once
        more, and another run has none, ``None``.

        Raises:
            AnswerRefusedError: one cannot be answered, or not like this.
        """
        async with self._lock:
            checked = [await self._checks.first(*each) for each in replies.items()]
            new = [each for each in checked if each is not None]
            if not new:
                return await self.log.begun(run_id)
            turn = self._new_turn()
            current_turn.set(turn)
            begins = started(self.log.shown_id, run_id, front_end=front_end)
            try:
                try:
                    after = await turn.begin(begins)
                except BusyError:  # the turn that runs takes the answers up
                    after = await self.log.last()
                for number, each in enumerate(new):
                    at = each.around if number == 0 else None  # it has grown by then
                    await self._agent.add_answer(each.question.id, each.reply, at=at)
                if turn.run is None:  # it may have ended before the answers were there
                    with suppress(BusyError):
                        after = await turn.begin(begins)
            except QuestionAnsweredError:  # just now, by another process, which has found this run
                raise AnswerRefusedError("answered", ANSWERED) from None
            except QuestionExpiredError:  # likewise: its tool goes on there
                raise AnswerRefusedError("expired", TOO_LATE) from None
            finally:
                await run_shielded(self._call_worker(turn, run_id))
            if turn.run is None:
                await self._runs.look_later(run_id)
            return after

    async def answer_differently(self, question_id: str, given: ElicitReply, run_id: str) -> None:
        """Answer a question again: another line begins there, and its tools go on.

        If a line with this answer has ended, nothing happens.

        Raises:
            AnswerRefusedError: it cannot be answered, or not like this.
            BusyError: a turn is running.
            AnabranchError: the answer could not be stored: the run has ended, with nothing done.
        """
        async with self._lock:
            other = await self._checks.another(question_id, given)
            turn = self._new_turn()
            current_turn.set(turn)
            try:
                await turn.begin(started(self.log.shown_id, run_id))
                await self._agent.add_answer(question_id, other.reply, again=True, at=other.around)
            except AnabranchError:
                await turn.succeed(is_empty=True)
                raise
            finally:
                await run_shielded(self._call_worker(turn, run_id))

    async def finish_empty(self, run_id: str) -> int:
        """Report a run in which there is nothing to do; return after which event it begins."""
        turn = self._new_turn()
        try:
            after = await turn.begin(started(self.log.shown_id, run_id))
            await turn.succeed(is_empty=True)
        finally:
            await run_shielded(self._call_worker(turn, run_id))
        return after

    async def stop(self) -> bool:
        """Stop the run that has not ended, and wait for its end; return whether there was one.

        If no worker had it, one is called for what its tools had done.
        """
        is_stopped = await stop_run(self.log, self._right, self._wake, self._runs.store_stop)
        end = await end_of(self._agent, self.thread_id) if is_stopped else None
        if end is not None and end.is_cut_off:
            await self._wake(OpenRun("", until=self._agent.dependencies.clock.now()))
        return is_stopped

    async def _call_worker(self, turn: LiveTurn, run_id: str) -> None:
        """Have a worker take the run, if it has begun; if that fails, one is called later."""
        if self._works_here and turn.is_new:
            turn.report_held()
            self._new = turn
        elif await turn.hand_over(is_called=True) is None:
            return
        await self._wake(OpenRun(run_id))

    async def _wake(self, run: OpenRun) -> None:
        """Call a worker for a run that waits: at its time, if it waits for one."""
        # It may have waited for this version before, under the same name: that wake is done.
        at = self._agent.dependencies.clock.now() if run.version else 0.0
        wake = Wake(
            self.thread_id,
            run.name,
            RUNS,
            run.version,
            share=self._share,
            not_before=run.until or at,
            trace=trace_here(),
        )
        try:
            await self._engine.wake(wake)
        except StoreError as error:
            logger.warning(
                "%r: no worker was called for a run: %s; it is looked for later", wake.call, error
            )

    async def close(self) -> None:
        """Leave to other processes what no worker has taken here, and store what was reported."""
        turn, self._new = self._new, None
        if turn is not None:
            await turn.hand_over()
        await self.log.flush()

    # -- what a worker does ------------------------------------------------------------------

    async def advance(self, turn: str) -> None:
        """Take the run that waits for a worker to its end, or as far as it comes, if one waits.

        ``turn`` is that of the wake: the run for which a worker was called.

        Raises:
            StoreError: the store failed.
        """
        new, self._new = self._new, None
        await self._runs.advance(new, OpenRun.of(turn))

    def _new_turn(self) -> LiveTurn:
        return LiveTurn(self.log, self._right)
