"""One conversation on the web: one turn runs at a time, and any number of pages may follow it.

A message or answer starts a run. The process that started the run stores its input, and follows the
events; a worker in any process does the work (``run_work.py``).
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
from anabranch.chat._web.answers import ANSWERED, TOO_LATE, AnswerChecks, AnswerRefusedError
from anabranch.chat._web.live_turn import LiveTurn, current_turn
from anabranch.chat._web.log_writer import LogWriter
from anabranch.chat._web.open_work import stop_run
from anabranch.chat._web.pending_questions import Questions
from anabranch.chat._web.run_input import HEAD, Message, Place, RunTakenError, input_in, started
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
    """Starts, answers and stops the runs of one thread.

    With ``works_here``, the worker is always this process, which keeps the right to a run that it
    starts.
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
        self._work = TurnWork(agent, thread)
        self._runs = RunWork(
            agent, thread, questions, self.log, self._right, self._wake, self._look
        )
        self._engine = engine
        self._lock = asyncio.Lock()
        self._advancing = asyncio.Lock()
        self._keeps_new = works_here
        self._new: LiveTurn | None = None
        """A turn that started here, and that no worker has taken yet."""

    async def is_running(self) -> bool:
        return await self._right.open_run() is not None

    async def position(self) -> EventId:
        """Return the id of the event after which a reader of the tree must read on.

        During a run, the id is that of the event before the run: the tree does not have all of the
        run's events yet.
        """
        run = await self._right.open_run()
        begun = None if run is None else await self.log.begun(run.id)
        return await self.log.id_of(begun)

    @property
    def is_idle(self) -> bool:
        in_progress = not self._runs.is_idle or self._new or self._lock.locked()
        return not in_progress and self.log.is_written

    @property
    def is_untaken(self) -> bool:
        return self._new is not None

    # -- actions of users --------------------------------------------------------------------

    async def say(
        self,
        text: str,
        run_id: str,
        *,
        at: Place = HEAD,
        files: Sequence[FileBlock] = (),
        message_id: str = "",
        front_end: FrontEnd | None = None,
        results: Mapping[str, FrontEndResult] | None = None,
        may_wait: bool = False,
    ) -> int:
        """Start a turn with a user's message; return the number of the event before it.

        While the turn in progress waits for a time, one message that ``may_wait`` starts the next
        turn. The message first cancels open questions, and calls of the front end's tools without
        an entry in ``results``. A repeated run with the same message gets its events again. Under
        another run, a message that repeats its ``message_id`` and content begins a branch next to
        the first one. With ``at=None``, the message is another beginning of the thread. The thread
        already has the ``files``.

        Raises:
            RunTakenError: if the run has begun with another message, or with answers.
        """
        message = Message(text, at, tuple(files), message_id)
        await self._work.check(message)
        async with self._lock, self._new_turn() as turn:
            try:
                after = await turn.begin(started(self.log.shown_id, run_id, message, front_end))
            except BusyError:
                if not (may_wait and await self._queue(run_id, message, front_end)):
                    raise
                return await self.log.last()
            if turn.run is None:  # a repeated run
                first, *_ = await self.log.read(after, after + 1)
                _check_repeated(run_id, first, message)
            elif results:
                await self._add_results(turn, results)
            return after

    async def _queue(self, run_id: str, message: Message, front_end: FrontEnd | None) -> bool:
        """Queue a message behind a turn that waits for a time; return false for no such turn."""
        # The waiting turn moves the head, and a message after the head follows the turn's end.
        if message.at == await self._agent.head(self.thread_id):
            message = replace(message, at=HEAD)
        queued = await self._right.queued()
        if queued is not None and queued.id == run_id:
            _check_repeated(run_id, queued.event, message)
        return await self._right.queue(started(self.log.shown_id, run_id, message, front_end))

    async def retry(self, node_id: str, run_id: str) -> None:
        """Retry a turn that ended at a node without a reply, from its last whole step."""
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
        current_turn.set(turn)
        for question_id, result in results.items():
            with suppress(QuestionAnsweredError, QuestionExpiredError):  # too late: dropped
                await add_reply(self._agent, question_id, result)

    async def answer(
        self,
        replies: Mapping[str, ElicitReply | FrontEndResult],
        run_id: str,
        front_end: FrontEnd | None = None,
    ) -> int | None:
        """Answer questions; return the number of the last event before the answers.

        All answers are checked before the first is stored. A turn that still runs takes up the
        answers. For equal answers the result is ``None``, or the beginning of the repeated run. If
        another process answers meanwhile, the answers before that question stay.
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
        """Answer a question again, so that its tool continues on a second line."""
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
        async with self._new_turn() as turn:
            after = await turn.begin(started(self.log.shown_id, run_id))
            await turn.succeed(is_empty=True)
            return after

    async def stop(self) -> bool:
        """Stop the unfinished run and wait for its end; return false if there is none.

        If no worker had the run, a worker then undoes the effects of its tools.
        """
        is_stopped = await stop_run(self.log, self._right, self._wake, self._runs.store_stop)
        end = await end_of(self._agent, self.thread_id) if is_stopped else None
        if end is not None and end.is_cut_off:
            await self._right.look()
            await self._look(self._right.now())
        return is_stopped

    @asynccontextmanager
    async def _new_turn(self) -> AsyncGenerator[LiveTurn]:
        turn = LiveTurn(self.log, self._right)
        try:
            yield turn
        finally:
            await run_shielded(self._call_worker(turn))

    async def _call_worker(self, turn: LiveTurn) -> None:
        if self._keeps_new and turn.is_new:  # this process keeps the lease until its worker comes
            self._new, waits = turn, turn.run
        else:
            waits = await turn.hand_over(is_called=True)
        if waits is not None:
            await self._wake(waits)

    async def _wake(self, run: TurnRecord) -> None:
        # The run may have waited for this version before, under the same name, whose wake is done.
        await self._call(run.wake, self._right.now() if run.version else run.wakes_at, run.version)

    async def _look(self, at: float) -> None:
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
        turn, self._new = self._new, None
        if turn is not None:
            await turn.hand_over()
        await self.log.flush()

    # -- work of a worker ------------------------------------------------------------------

    async def advance(self, wake: Wake) -> None:
        async with self._advancing:
            new, self._new = self._new, None
            await self._runs.advance(new, wake)


def _check_repeated(run_id: str, event: bytes, message: Message) -> None:
    """Check that the first event of a run has the text and the files of ``message``."""
    before, _ = input_in(event)
    if before is None or (before.text, before.files) != (message.text, message.files):
        raise RunTakenError(run_id)
