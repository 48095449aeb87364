"""The work on the runs of one conversation: a worker takes a run to its end, or as far as it comes now.

It ends at a person's questions, which are in the store before anyone is shown them; or it waits, under
its thread's lease, for other code, or for a time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ag_ui.core import Interrupt

from anabranch._aio import cancel_and_wait, run_shielded
from anabranch.agents import Agent, end_of
from anabranch.chat._web.live_turn import LiveTurn, current_turn
from anabranch.chat._web.open_run import OpenRun
from anabranch.chat._web.pending_questions import Questions
from anabranch.chat._web.run_input import started
from anabranch.chat._web.thread_lease import SECONDS, STOP, BusyError, ThreadLease
from anabranch.chat._web.thread_log import ThreadLog
from anabranch.chat._web.turn_times import Asleep
from anabranch.chat._web.turn_work import ASIDE, TurnWork, has_replied
from anabranch.errors import AnabranchError, OtherVersionError, StoreError, UnreachableError
from anabranch.models import ModelError
from anabranch.tree import Node, RefusedError, TurnEnd, store_turn_end

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

MOST_ATTEMPTS = 5
"""How many processes may die over one run."""

CUT_OFF = (
    "The run was cut off while a tool ran. What the tool had done is not stored, so it is not run"
    " again."
)
GIVEN_UP = f"The run was cut off {MOST_ATTEMPTS} times, and is not tried again."


class RunWork:
    """The runs of one conversation, of which one is worked on at a time.

    Args:
        agent: leads the conversation.
        questions: reads its questions.
        log: the thread's events.
        right: the right to run in the thread.
        wake: calls a worker for a run that waits.
    """

    def __init__(
        self,
        agent: Agent,
        questions: Questions,
        log: ThreadLog,
        right: ThreadLease,
        wake: Callable[[OpenRun], Awaitable[None]],
    ) -> None:
        self._agent = agent
        self._questions = questions
        self._log = log
        self._thread_id = log.thread_id
        self._right = right
        self._wake = wake
        self._turn: LiveTurn | None = None

    @property
    def is_idle(self) -> bool:
        """Whether this process works on no run of the thread."""
        return self._turn is None

    async def advance(self, new: LiveTurn | None, waiting: OpenRun) -> None:
        """Take the run that waits for a worker to its end, and what is answered meanwhile.

        Nothing happens if none waits: it has ended, or another process works on it.

        Args:
            new: the turn of a run that has begun here, and that no worker has taken yet.
            waiting: the run that probably waits, for which a worker was called.

        Raises:
            StoreError: the store failed.
        """
        if (turn := await self._expected(new, waiting)) is None and waiting.until:
            await self._look_again(waiting)
        is_sure, asleep = self._agent.dependencies.calls is not None, Asleep()
        while turn := turn or await self._next_turn(asleep, is_sure=is_sure):
            turn.task = asyncio.create_task(self._run(turn))
            self._turn = turn
            try:
                await asyncio.wait([turn.task])
            finally:
                await run_shielded(cancel_and_wait([turn.task]))
                self._turn = None
            if turn.is_waiting:
                return
            is_sure, asleep = True, turn.times.asleep(self._agent.dependencies.clock.now())
            await self._log.flush()  # from then on, what a person does begins another run
            if await self._agent.cut_off(self._thread_id, asleep) is None:
                return
            turn = None

    async def store_stop(self, turn: LiveTurn) -> None:
        """Store that a run was stopped which no worker has taken, and its message."""
        current_turn.set(turn)
        await self._store_end(turn, None)

    async def look_later(self, run_id: str) -> None:
        """Have the thread looked at later, although a run that is in progress takes up what is there.

        Its process may die when it has looked for the last time: then there is no run any more.
        """
        later = self._agent.dependencies.clock.now() + SECONDS
        await self._wake(OpenRun(run_id, until=later))

    async def _look_again(self, waiting: OpenRun) -> None:
        """Look once more if the thread was to be looked at, and the run that was in progress still is."""
        held = await self._right.held()
        if held is not None and held.worker and held.run_id != waiting.run_id:
            await self.look_later(waiting.run_id)

    async def _expected(self, new: LiveTurn | None, waiting: OpenRun) -> LiveTurn | None:
        """Return the turn that has begun here, or that of the run for which a worker was called."""
        if new is not None and new.is_new:
            return new
        turn = LiveTurn(self._log, self._right)
        return turn if await turn.take(waiting) else None

    async def _next_turn(self, asleep: Asleep, *, is_sure: bool) -> LiveTurn | None:
        """Return a turn that this process has to work on.

        Where tools can go on that belong to no run, one begins: they have answers that came when
        the last run was about to end, or their time has come, or ``is_sure`` says that what they
        did is stored. Those that are known to be ``asleep`` cannot.
        """
        turn, held = LiveTurn(self._log, self._right), await self._right.held()
        if held is not None and not held.is_alarm:
            return turn if await turn.take(held) else None
        now = self._agent.dependencies.clock.now()
        alarm = held if held is not None and held.until <= now else None
        if not is_sure and alarm is None:
            return None
        end = await end_of(self._agent, self._thread_id, asleep=asleep)
        if end is None or not end.can_go_on:
            if alarm is not None:
                await self._move(alarm, math.inf if end is None else end.until)
            return None
        why = "resumed" if alarm is None else f"at_{alarm.until!r}"
        with suppress(BusyError):
            await turn.begin(started(self._log.shown_id, f"run_{end.around.last.id}_{why}"))
        turn.is_resumed = alarm is None
        return None if turn.run is None else turn

    async def _move(self, alarm: OpenRun, until: float) -> None:
        if (later := await self._right.move_alarm(alarm, until)) is not None:
            await self._wake(later)

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
            await self._fail(turn, str(error))
        except (StoreError, UnreachableError) as error:  # who comes later may reach the store
            logger.warning("thread %r: a turn was cut off: %s", self._thread_id, error)
            await turn.hand_over()
        except (AnabranchError, ModelError) as error:
            await self._fail(turn, str(error))
        except Exception:  # what is not meant for the page is for the log
            logger.exception("thread %r: a turn has failed", self._thread_id)
            await self._fail(turn, "The run has failed; the server's log says why.")

    async def _take_to_its_end(self, turn: LiveTurn) -> None:
        events, run = await turn.read(), turn.run
        if run is None or not events:  # its process died before it was stored
            await turn.drop()
        elif run.attempt >= MOST_ATTEMPTS:
            await self._fail(turn, GIVEN_UP)
        elif STOP in events or await self._was_stopped(turn):
            await self._stop(turn)
        elif run.attempt and not await self._can_go_on():
            await self._fail(turn, CUT_OFF)
        else:
            report = turn.show_missed if turn.is_taken_over else None
            agent = self._agent.of_run(run.run_id, turn.front_end)
            work = TurnWork(agent, self._thread_id, report)
            last = await work.run(run.run_id, turn.message, is_new=turn.is_new)
            if turn.is_taken_over and await self._goes_on_below(last):
                last = await work.run(run.run_id, None)
            await self._end(turn, work, last)

    async def _was_stopped(self, turn: LiveTurn) -> bool:
        """Whether what this turn would go on with was stopped while no worker had it."""
        end = await end_of(self._agent, self._thread_id) if turn.is_resumed else None
        return end is not None and end.is_cut_off and await turn.follows_a_stop()

    async def _goes_on_below(self, last: Node) -> bool:
        """Whether a process that had the run before has stored more, and did not go on with it."""
        end = await end_of(self._agent, self._thread_id)
        return end is not None and last.id in {node.id for node in end.around.nodes[:-1]}

    async def _can_go_on(self) -> bool:
        """Whether no effect is repeated by a run that was cut off."""
        is_stored = self._agent.dependencies.calls is not None
        end = None if is_stored else await end_of(self._agent, self._thread_id)
        return end is None or not end.can_go_on

    async def _end(self, turn: LiveTurn, work: TurnWork, last: Node) -> None:
        """End a turn that has come to ``last``, after all that can go on now: this decides how.

        It ends wholly, or with a person's questions or calls of the front end's tools; or it waits for
        a time.
        """
        asked, asleep, until = list[Interrupt](), Asleep(), math.inf
        is_open = False
        await self._show_missed(turn, last)
        while last.kind in ASIDE or last.tool_uses:
            asleep = turn.times.asleep(self._agent.dependencies.clock.now())
            end = await end_of(self._agent, self._thread_id, asleep=asleep)
            if end is None or not (end.can_go_on or end.is_unread):
                is_there = end is not None and end.around.last.id == last.id
                end = end if is_there else await end_of(self._agent, self._thread_id, last.id)
                if end is not None:
                    asked, until = await self._questions.asked_at(end), end.until
                    is_open = bool(end.questions)
                break
            last = await work.go_on(end.around)
            await self._show_missed(turn, last)
        until = min([*asleep.values(), until])
        if is_open:
            await turn.ask(asked, 0.0 if until == math.inf else until)
            if until < math.inf:
                await self._wake(OpenRun("", until=until))
        elif until < math.inf:
            await self._wait(turn, until=until)
        else:
            await turn.succeed()

    async def _show_missed(self, turn: LiveTurn, last: Node) -> None:
        """Report what the run has come to that another process has stored, and not reported."""
        if turn.is_taken_over:
            path = (await self._agent.store.path(last.id)).nodes
            await turn.show_missed(path)
            await turn.show_missed_beside(path, await self._agent.store.tree(self._thread_id))

    async def _wait(self, turn: LiveTurn, *, version: str = "", until: float = 0.0) -> None:
        """Have a run wait for a worker of a version, or until a time."""
        run = await turn.hand_over(is_called=True, version=version, until=until)
        if run is not None:
            await self._wake(run)

    async def _stop(self, turn: LiveTurn) -> None:
        """Report that a turn was stopped, when what its calls have done that sleep is undone.

        So do tools end that the stop has kept from beginning: else another run began with them.
        """
        try:
            end = await end_of(self._agent, self._thread_id)
            if turn.has_slept or (end is not None and end.is_cut_off):
                await self._agent.interrupt_tools(self._thread_id)
        except AnabranchError as error:
            logger.warning(
                "thread %r: what a stopped run has done is undone when it expires: %s",
                self._thread_id,
                error,
            )
        await self._store_end(turn, None)
        await turn.stop()

    async def _fail(self, turn: LiveTurn, message: str) -> None:
        """Report why a turn has ended."""
        await self._store_end(turn, message)
        await turn.fail(message)

    async def _store_end(self, turn: LiveTurn, error: str | None) -> None:
        """Store how a turn has ended at the head, where its last node is: its message, if no other.

        A stop may come when the reply is whole: then there is nothing to try again.
        """
        try:
            if not await self._is_said(turn) and error is None:
                return
            around = await self._agent.store.around(self._thread_id)
            if around is not None and not has_replied(around):
                await store_turn_end(self._agent.store, TurnEnd(around.last.id, error))
        except AnabranchError as problem:
            name = self._thread_id
            logger.warning("thread %r: the end of a turn could not be stored: %s", name, problem)

    async def _is_said(self, turn: LiveTurn) -> bool:
        """Whether the message of a turn is in the tree, if it has one: it is added if it can be."""
        if turn.run is None or turn.message is None:
            return True
        run_id = turn.run.run_id
        work = TurnWork(self._agent.of_run(run_id), self._thread_id)
        return await work.keep(run_id, turn.message)
