"""One conversation on the web: one turn runs at a time, and any number of pages may follow it.

A user's message or answer starts a run, and the conversation stores the run with its input. Then
the conversation calls a worker, in this process or another, which does the run's work
(``run_work.py``). The process that started the run only follows its events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from anabranch._aio import run_shielded
from anabranch._durable import EventId, TurnRecord
from anabranch._telemetry import trace_here
from anabranch.agents import (
    Agent,
    FrontEnd,
    FrontEndResult,
    QuestionAnsweredError,
    QuestionExpiredError,
    add_reply,
    end_of,
)
from anabranch.chat._web.answer_checks import ANSWERED, TOO_LATE, AnswerChecks, AnswerRefusedError
from anabranch.chat._web.live_turn import LiveTurn, current_turn, stop_run
from anabranch.chat._web.log_writer import LogWriter
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
"""The capability that a worker of conversations' runs must have; the name stands for a tool's."""

LOOK = "look"
"""The name of a wake that lets a worker see whether tools of a thread without a run can continue."""


class Conversation:
    """The conversation in one thread: starts runs, takes answers, and stops runs.

    With ``works_here``, the worker that ``engine`` calls is always this process, which then keeps the
    right to a run that it has started.
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
        self._right = ThreadLease(
            writer.events,
            self.log,
            thread.id,
            writer.clock,
            agent.dependencies.version,
            thread.owner or "",
        )
        self._agent = agent
        self._questions = questions
        self._checks = AnswerChecks(agent, questions, thread.id)
        self._work = TurnWork(agent, thread.id)
        self._runs = RunWork(agent, questions, self.log, self._right, self._wake, self._look)
        self._engine = engine
        self._lock = asyncio.Lock()
        self._advancing = asyncio.Lock()
        self._keeps_new = works_here
        self._new: LiveTurn | None = None
        """A turn that started here, and that no worker has taken yet."""

    async def is_running(self) -> bool:
        """Whether any process has a run of this conversation that is not finished."""
        return await self._right.open_run() is not None

    async def position(self) -> EventId:
        """Return the id of the event after which a page that has read the tree must read on.

        Without a run, this is the id of the last event. During a run, this is the id of the event
        before the run, because the tree does not have all events of the run yet.
        """
        run = await self._right.open_run()
        begun = None if run is None else await self.log.begun(run.id)
        return await self.log.id_of(begun)

    @property
    def is_idle(self) -> bool:
        """Whether this process has no work in the conversation and no events to store."""
        in_progress = not self._runs.is_idle or self._new or self._lock.locked()
        return not in_progress and self.log.is_written

    @property
    def is_untaken(self) -> bool:
        """Whether a run waits here until this process has finished work on other runs."""
        return self._new is not None

    # -- actions of users --------------------------------------------------------------------

    async def say(
        self,
        text: str,
        run_id: str,
        *,
        at: Place = HEAD,
        files: Sequence[FileBlock] = (),
        front_end: FrontEnd | None = None,
        results: Mapping[str, FrontEndResult] | None = None,
        may_wait: bool = False,
    ) -> int:
        """Start a turn with a message of the user; return the number of the event before it.

        While the turn in progress waits for a time, a message that ``may_wait`` is stored, and
        starts the next turn. One message at a time may wait so.

        The message follows the node ``at``; ``None`` makes it another beginning of the thread. The
        thread already has its ``files``. A repeated run has the same message: the client receives its
        events again.

        The conversation first cancels open questions, and their tools read the cancellation. Calls
        of the front end's tools without an entry in ``results``, which is keyed by their questions,
        are cancelled as well. A message ``/TOOL name=value …`` calls a tool without the model.

        Raises:
            BusyError: if a turn is running.
            AnabranchError: if :meth:`TurnWork.check` refuses the message.
        """
        message = Message(text, at, tuple(files))
        await self._work.check(message)
        async with self._lock, self._new_turn() as turn:
            try:
                after = await turn.begin(started(self.log.shown_id, run_id, message, front_end))
            except BusyError:
                if not (may_wait and await self._queue(run_id, message, front_end)):
                    raise
                after = await self.log.last()
            if turn.run is not None and results:
                await self._add_results(turn, results)
            return after

    async def _queue(self, run_id: str, message: Message, front_end: FrontEnd | None) -> bool:
        """Queue a message behind a turn that waits for a time; return false if no turn waits so.

        A message after the head follows the end of that turn, which moves the head.
        """
        if message.at == await self._agent.head(self.thread_id):
            message = replace(message, at=HEAD)
        return await self._right.queue(started(self.log.shown_id, run_id, message, front_end))

    async def retry(self, node_id: str, run_id: str) -> None:
        """Retry a turn that ended at a node without a reply, from its last whole step.

        Raises:
            BusyError: if a turn is running.
            ToolError: if no turn ended at the node.
        """
        async with self._lock:
            await self._work.retried_at(node_id)  # raises before a run starts
            async with self._new_turn() as turn:
                await turn.begin(started(self.log.shown_id, run_id))
                try:
                    await self._work.go_back(node_id)
                except ToolError:  # another process has retried the turn
                    await turn.succeed(is_empty=True)
                    raise

    async def _add_results(self, turn: LiveTurn, results: Mapping[str, FrontEndResult]) -> None:
        """Store the results of front-end tools; a result that comes too late is dropped."""
        current_turn.set(turn)
        for question_id, result in results.items():
            with suppress(QuestionAnsweredError, QuestionExpiredError):
                await add_reply(self._agent, question_id, result)

    async def answer(
        self,
        replies: Mapping[str, ElicitReply | FrontEndResult],
        run_id: str,
        front_end: FrontEnd | None = None,
    ) -> int | None:
        """Answer questions; return the number of the last event before the answers.

        All answers are checked before the first is stored. A turn that still runs takes them up;
        otherwise a run starts. If the questions already have these answers, nothing happens: a
        repeated run gets its events again, and for another run the result is ``None``.

        Raises:
            AnswerRefusedError: if a question takes no answer, or another answer. If another process
                answers a question meanwhile, the answers to the questions before it stay.
        """
        async with self._lock:
            checked = [await self._checks.first(*each) for each in replies.items()]
            new = [each for each in checked if each is not None]
            if not new:
                return await self.log.begun(run_id)
            begins = started(self.log.shown_id, run_id, front_end=front_end)
            try:
                async with self._new_turn() as turn:
                    current_turn.set(turn)
                    try:
                        after = await turn.begin(begins)
                    except BusyError:  # the turn that runs takes the answers up
                        after = await self.log.last()
                        await turn.join(each.around for each in new)
                    for number, each in enumerate(new):
                        at = each.around if number == 0 else None  # the first answer moves the end
                        await add_reply(self._agent, each.question.id, each.reply, at=at)
                    if turn.run is None:  # the turn may have ended before the answers arrived
                        with suppress(BusyError):
                            after = await turn.begin(begins)
            except QuestionAnsweredError:  # another process answered, and found this run
                raise AnswerRefusedError("answered", ANSWERED) from None
            except QuestionExpiredError:  # the tool continues there
                raise AnswerRefusedError("expired", TOO_LATE) from None
            if turn.run is None:
                await self._right.look()  # the turn's process may die after its last look
            return after

    async def answer_differently(self, question_id: str, given: ElicitReply, run_id: str) -> None:
        """Answer an answered question again, so that its tool continues on a second line.

        If a line with this answer has ended, nothing happens.

        Raises:
            AnswerRefusedError: if the question takes no answer, or not this one.
            BusyError: if a turn is running.
            AnabranchError: if the store refuses the answer; the run then ends without any work.
        """
        async with self._lock:
            other = await self._checks.another(question_id, given)
            async with self._new_turn() as turn:
                current_turn.set(turn)
                try:
                    await turn.begin(started(self.log.shown_id, run_id))
                    reply, at = other.reply, other.around
                    await add_reply(self._agent, question_id, reply, again=True, at=at)
                except AnabranchError:
                    await turn.succeed(is_empty=True)
                    raise

    async def finish_empty(self, run_id: str) -> int:
        """Report a run that has no work; return the number of the last event before the run."""
        async with self._new_turn() as turn:
            after = await turn.begin(started(self.log.shown_id, run_id))
            await turn.succeed(is_empty=True)
            return after

    async def stop(self) -> bool:
        """Stop the unfinished run and wait for its end; return false if no run is unfinished.

        If no worker had the run, call one for the effects of its tools.
        """
        is_stopped = await stop_run(self.log, self._right, self._wake, self._runs.store_stop)
        end = await end_of(self._agent, self.thread_id) if is_stopped else None
        if end is not None and end.is_cut_off:
            await self._right.look()
            await self._look(self._right.now())
        return is_stopped

    @asynccontextmanager
    async def _new_turn(self) -> AsyncGenerator[LiveTurn]:
        """Yield a turn without a run; a worker takes the run that has begun when the block ends."""
        turn = LiveTurn(self.log, self._right)
        try:
            yield turn
        finally:
            await run_shielded(self._call_worker(turn))

    async def _call_worker(self, turn: LiveTurn) -> None:
        """Leave a started run to a worker; return the run's wake to the engine."""
        if self._keeps_new and turn.is_new:
            self._new, waits = turn, turn.run
        else:
            waits = await turn.hand_over(is_called=True)
        if waits is not None:
            await self._wake(waits)

    async def _wake(self, run: TurnRecord) -> None:
        """Tell the engine to wake a worker for a waiting run, now or at the run's time."""
        # The run may have waited for this version before, under the same name, whose wake is done.
        await self._call(run.wake, self._right.now() if run.version else run.wakes_at, run.version)

    async def _look(self, at: float) -> None:
        """Tell the engine to wake a worker at a time, which checks whether tools can continue."""
        await self._call(LOOK, at)

    async def _call(self, name: str, at: float, version: str = "") -> None:
        wake = Wake(self.thread_id, name, RUNS, version, not_before=at, trace=trace_here())
        try:
            await self._engine.wake(wake)
        except StoreError as error:
            logger.warning(
                "%r: could not call a worker for a run: %s; a worker looks for it later",
                wake.call,
                error,
            )

    async def close(self) -> None:
        """Leave this process's unstarted run to other processes, and store all reported events."""
        turn, self._new = self._new, None
        if turn is not None:
            await turn.hand_over()
        await self.log.flush()

    # -- work of a worker ------------------------------------------------------------------

    async def advance(self, wake: Wake) -> None:
        async with self._advancing:
            new, self._new = self._new, None
            await self._runs.advance(new, wake)
