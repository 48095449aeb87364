"""One conversation as it is led over the web: one turn at a time, watched by any number of pages.

What a person does begins a run, which is stored with what it needs; then a worker is called, in this
process or in another, and takes the run to its end or to its next questions, which are in the store
before anyone is shown them. Who has begun the run only follows its events.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Container, Mapping
from contextlib import suppress
from dataclasses import replace

from ag_ui.core import Interrupt

from anabranch._engine.combine import cancel_and_wait
from anabranch._shielded import run_shielded
from anabranch._telemetry import trace_here
from anabranch.agents import Agent, QuestionAnsweredError
from anabranch.chat._web.answer_checks import ANSWERED, AnswerChecks, AnswerRefusedError
from anabranch.chat._web.branch_work import MOST_ATTEMPTS, BranchWork
from anabranch.chat._web.live_turn import LiveTurn, current_turn, stop_run
from anabranch.chat._web.log_writer import LogWriter
from anabranch.chat._web.pending_questions import Questions
from anabranch.chat._web.run_input import HEAD, Message, Place, message_in, started
from anabranch.chat._web.thread_lease import STOP, WAITS, BusyError, OpenRun, ThreadLease
from anabranch.chat._web.thread_log import ThreadLog
from anabranch.chat._web.turn_work import ASIDE, TurnWork
from anabranch.engines import Engine, Wake
from anabranch.errors import AnabranchError, OtherVersionError, StoreError, UnreachableError
from anabranch.messages import ElicitReply
from anabranch.models import ModelError
from anabranch.tree import Node, RefusedError, Thread

__all__ = ["RUNS", "Conversation"]

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

RUNS = "anabranch.chat"
"""What a worker must have to take the runs of conversations: the name stands in for a tool's."""

CUT_OFF = "The run was cut off while a tool ran. What the tool had done is not stored, so it is not run again."
GIVEN_UP = f"The run was cut off {MOST_ATTEMPTS} times, and is not tried again."


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
        branches: its branches that any worker works on.
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
        self.branches: BranchWork = BranchWork(
            agent, self.log, self._right, writer, self._wake_again
        )
        self._engine = engine
        self._share = thread.owner or ""
        self._lock = asyncio.Lock()
        self._turn: LiveTurn | None = None
        self._works_here = works_here
        self._new: LiveTurn | None = None
        """A turn that was begun here, and that no worker has taken yet."""

    async def is_running(self) -> bool:
        """Whether a run has not ended, in any process: one that waits at a question has."""
        return await self._right.open_run() is not None

    async def position(self) -> int:
        """Return the number of the event after which a reader of the tree goes on.

        It is the last one; or, while a run is in progress, the one before that run, whose events
        are not all in the tree.
        """
        run = await self._right.open_run()
        begun = None if run is None else await self.log.begun(run.run_id)
        return await self.log.last() if begun is None else begun

    @property
    def is_idle(self) -> bool:
        """Whether nothing happens in it in this process."""
        in_progress = self._turn or self._new or self._lock.locked()
        return not in_progress and self.branches.is_idle and self.log.is_written

    @property
    def is_untaken(self) -> bool:
        """Whether a run has begun for this process, which is at work on others."""
        return self._new is not None

    # -- what a person does ------------------------------------------------------------------

    async def say(self, text: str, run_id: str, *, at: Place = HEAD) -> int:
        """Begin a turn with a message of the person; return after which event it begins.

        The message follows the node ``at``; ``None`` makes it another beginning of the thread. The
        same run again is the same message: its events are sent once more.

        Open questions are left first: their tools read that they were cancelled. A message
        ``/TOOL name=value …`` calls a tool without the model.

        Raises:
            BusyError: a turn is running.
            ToolError: the message is blank, or ``at`` is no node of the thread.
            SessionError: the arguments of a tool cannot be read.
            InvalidArgumentsError: they do not fit.
        """
        message = Message(text, at)
        await self._work.check(message)
        async with self._lock:
            turn = self._new_turn()
            try:
                return await turn.begin(started(self.thread_id, run_id, message))
            finally:
                await run_shielded(self._call_worker(turn, run_id))

    async def answer(self, replies: Mapping[str, ElicitReply], run_id: str) -> int | None:
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
            begins = started(self.thread_id, run_id)
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
                if turn.run is None:  # it may wait for branches, of which one can go on now
                    await self.branches.call_all()
            except QuestionAnsweredError:  # just now, by another process
                await turn.fail(ANSWERED)
                raise AnswerRefusedError("answered", ANSWERED) from None
            finally:
                await run_shielded(self._call_worker(turn, run_id))
            return after

    async def answer_differently(self, question_id: str, given: ElicitReply, run_id: str) -> None:
        """Answer a question again: another line begins there, and its tools go on.

        If a line with this answer has ended, nothing happens.

        Raises:
            AnswerRefusedError: it cannot be answered, or not like this.
            BusyError: a turn is running.
        """
        async with self._lock:
            other = await self._checks.another(question_id, given)
            turn = self._new_turn()
            current_turn.set(turn)
            try:
                await turn.begin(started(self.thread_id, run_id))
                await self._agent.add_answer(question_id, other.reply, again=True, at=other.around)
            except AnabranchError as error:
                await turn.fail(str(error))
            finally:
                await run_shielded(self._call_worker(turn, run_id))

    async def finish_empty(self, run_id: str) -> int:
        """Report a run in which there is nothing to do; return after which event it begins."""
        turn = self._new_turn()
        try:
            after = await turn.begin(started(self.thread_id, run_id))
            await turn.succeed(is_empty=True)
        finally:
            await run_shielded(self._call_worker(turn, run_id))
        return after

    async def stop(self) -> bool:
        """Stop the run that has not ended, and wait for its end; return whether there was one."""
        return await stop_run(self.log, self._right, self._wake)

    async def _call_worker(self, turn: LiveTurn, run_id: str) -> None:
        """Have a worker take the run, if it has begun; if that fails, one is called later."""
        if self._works_here and turn.is_new:
            self._new = turn
        elif await turn.hand_over(is_called=True) is None:
            return
        await self._wake(OpenRun(run_id), run_id)

    async def _wake(self, run: OpenRun, turn: str = "", *, call: str = "") -> None:
        """Call a worker for a run, or a branch, that waits: at its time, if it waits for one."""
        wake = Wake(
            call or self.thread_id,
            turn or run.name,
            RUNS,
            run.version,
            share=self._share,
            not_before=run.until,
            trace=trace_here(),
        )
        try:
            await self._engine.wake(wake)
        except StoreError as error:
            logger.warning("no worker was called for a run: %s; it is looked for later", error)

    async def _wake_again(self, call: str, run: OpenRun) -> None:
        """Call a worker for what has waited before under the same name: at another time."""
        now = self._agent.dependencies.clock.now()
        await self._wake(run if run.until else replace(run, until=now), run.name, call=call)

    async def close(self) -> None:
        """Leave to other processes what no worker has taken here, and store what was reported."""
        turn, self._new = self._new, None
        if turn is not None:
            await turn.hand_over()
        await self.log.flush()

    # -- what a worker does ------------------------------------------------------------------

    async def advance(self) -> None:
        """Take the run that waits for a worker to its end, and what is answered meanwhile.

        Nothing happens if none waits: it has ended, or another process works on it.

        Raises:
            StoreError: the store failed.
        """
        is_sure, asleep = self._agent.dependencies.calls is not None, set[tuple[str, str]]()
        while (turn := await self._next_turn(asleep, is_sure=is_sure)) is not None:
            turn.task = asyncio.create_task(self._run(turn))
            self._turn = turn
            try:
                await asyncio.wait([turn.task])
            finally:
                await run_shielded(cancel_and_wait([turn.task]))
                self._turn = None
            if turn.is_waiting:
                return
            is_sure, asleep = True, set(turn.asleep(self._agent.dependencies.clock.now()))

    async def _next_turn(
        self, asleep: Container[tuple[str, str]], *, is_sure: bool
    ) -> LiveTurn | None:
        """Return a turn that this process has to work on.

        Where tools can go on that belong to no run, one begins: they have answers that came when
        the last run was about to end, or their time has come, or ``is_sure`` says that what they
        did is stored. Those that are known to be ``asleep`` cannot.
        """
        new, self._new = self._new, None
        if new is not None and new.is_new:
            return new
        turn, held = self._new_turn(), await self._right.held()
        if held is not None and not held.is_alarm:
            return turn if await turn.take(held) else None
        now = self._agent.dependencies.clock.now()
        alarm = held if held is not None and held.until <= now else None
        is_looked_at = is_sure or alarm is not None
        node = await self._agent.cut_off(self.thread_id, asleep) if is_looked_at else None
        if node is None:
            if alarm is not None:
                await self._right.clear(alarm)
            return None
        why = "resumed" if alarm is None else f"at_{alarm.until!r}"
        with suppress(BusyError):
            await turn.begin(started(self.thread_id, f"run_{node.id}_{why}"))
        return None if turn.run is None else turn

    async def _run(self, turn: LiveTurn) -> None:
        current_turn.set(turn)
        turn.suspension.enter()
        try:
            await self._take_to_its_end(turn)
        except asyncio.CancelledError:
            if self._agent.dependencies.suspension.begun:
                await turn.hand_over()
            else:
                await run_shielded(self._stop(turn))
        except OtherVersionError as other:
            await self._wait(turn, version=other.version)
        except RefusedError as error:
            await turn.fail(str(error))
        except (StoreError, UnreachableError) as error:  # who comes later may reach the store
            logger.warning("a turn was cut off: %s", error)
            await turn.hand_over()
        except (AnabranchError, ModelError) as error:
            await turn.fail(str(error))
        except Exception:  # what is not meant for the page is for the log
            logger.exception("a turn has failed")
            await turn.fail("The run has failed; the server's log says why.")

    async def _take_to_its_end(self, turn: LiveTurn) -> None:
        events, run = await turn.read(), turn.run
        if run is None or not events:  # its process died before it was stored, or long ago
            await turn.drop()
        elif run.attempt >= MOST_ATTEMPTS:
            await turn.fail(GIVEN_UP)
        elif STOP in events:
            await self._stop(turn)
        elif run.attempt and not await self._can_go_on():
            await turn.fail(CUT_OFF)
        else:
            if run.attempt:
                await self._show_missed(turn)
            message = message_in(events[0])
            await self._end(turn, await self._work.run(run.run_id, message, is_new=turn.is_new))

    async def _show_missed(self, turn: LiveTurn) -> None:
        """Report the last nodes, which a process has stored, but not reported before it died."""
        head = await self._agent.head(self.thread_id)
        nodes = () if head is None else (await self._agent.store.path(head)).nodes
        await turn.show_missed(nodes)

    async def _can_go_on(self) -> bool:
        """Whether no effect is repeated by a run that was cut off."""
        is_stored = self._agent.dependencies.calls is not None
        end = None if is_stored else await self._agent.end(self.thread_id)
        return end is None or not (end.can_go_on and end.goes_on_here)

    async def _end(self, turn: LiveTurn, last: Node) -> None:
        """End a turn that has come to ``last``, after all that can go on now: this decides how.

        It ends wholly, or with a person's questions; or it waits for a time.
        """
        asked, asleep = list[Interrupt](), dict[tuple[str, str], float]()
        while last.kind in ASIDE or last.tool_uses:
            asleep = turn.asleep(self._agent.dependencies.clock.now())
            end = await self._agent.end(self.thread_id, asleep=asleep)
            if end is not None and end.branches and not end.goes_on_here:
                await self._wait_for_branches(turn, min(asleep.values(), default=math.inf))
                return
            if end is None or not end.goes_on_here:
                is_there = end is not None and end.around.last.id == last.id
                end = end if is_there else await self._agent.end(self.thread_id, last.id)
                asked = [] if end is None else await self._questions.asked_at(end)
                break
            last = await self._work.go_on(end.around)
        until = min(asleep.values(), default=0.0)
        if asked:
            await turn.interrupt(asked, until)
            if until:
                await self._wake(OpenRun("", until=until))
        elif until:
            await self._wait(turn, until=until)
        else:
            await turn.succeed()

    async def _wait_for_branches(self, turn: LiveTurn, until: float) -> None:
        """Have a run wait until its branches let it go on, and workers called for these.

        It looks at them from time to time as well: a call may be lost.
        """
        now = self._agent.dependencies.clock.now()
        if await turn.hand_over(is_called=True, until=min(until, now + WAITS)) is not None:
            await self.branches.call_all()

    async def _wait(self, turn: LiveTurn, *, version: str = "", until: float = 0.0) -> None:
        """Have a run wait for a worker of a version, or until a time."""
        run = await turn.hand_over(is_called=True, version=version, until=until)
        if run is not None:
            await self._wake(run)

    async def _stop(self, turn: LiveTurn) -> None:
        """Report that a turn was stopped, when what its calls have done that sleep is undone."""
        try:
            if await self.branches.end() or turn.has_slept:
                await self._agent.interrupt_tools(self.thread_id)
        except AnabranchError as error:
            logger.warning("what a stopped run has done is undone when it expires: %s", error)
        await turn.stop()

    def _new_turn(self) -> LiveTurn:
        return LiveTurn(self.log, self._right)
