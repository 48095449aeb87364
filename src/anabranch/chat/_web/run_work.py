"""Works on the runs of one conversation, each until it ends or waits."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ag_ui.core import Interrupt

from anabranch._aio import cancel_and_wait, run_shielded
from anabranch._durable import TurnRecord, Wake
from anabranch.agents import Agent, end_of, with_front_end
from anabranch.chat._turns import end_turn
from anabranch.chat._web.event_mapping import shown_in
from anabranch.chat._web.live_turn import Asleep, LiveTurn, current_turn
from anabranch.chat._web.pending_questions import Questions
from anabranch.chat._web.run_input import started
from anabranch.chat._web.thread_lease import STOP, BusyError, ThreadLease
from anabranch.chat._web.thread_log import MISSED, ThreadLog
from anabranch.chat._web.turn_work import TurnWork
from anabranch.errors import AnabranchError, OtherVersionError, StoreError, UnreachableError
from anabranch.models import ModelError
from anabranch.tree import ASIDE, Node, RefusedError, Thread

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

MOST_ATTEMPTS = 5
"""The most processes that may die during one run."""

GIVEN_UP = f"The run was cut off {MOST_ATTEMPTS} times, and is not retried."


class RunWork:
    """Works on the runs of one conversation, one at a time.

    ``wake`` calls a worker for a waiting run, and ``look`` a worker for tools of no run.
    """

    def __init__(
        self,
        agent: Agent,
        thread: Thread,
        questions: Questions,
        log: ThreadLog,
        right: ThreadLease,
        wake: Callable[[TurnRecord], Awaitable[None]],
        look: Callable[[float], Awaitable[None]],
    ) -> None:
        self._agent = agent
        self._questions = questions
        self._log = log
        self._thread = thread
        self._thread_id = thread.id
        self._right = right
        self._wake = wake
        self._look = look
        self._turn: LiveTurn | None = None

    @property
    def is_idle(self) -> bool:
        return self._turn is None

    async def advance(self, new: LiveTurn | None, wake: Wake) -> None:
        """Run the waiting run to its end, then continue with answers that arrived meanwhile.

        Nothing happens if no run waits: the run has ended, or another process works on it.
        """
        turn = new if new is not None and new.is_new else await self._taken()
        asleep = Asleep()
        while turn := turn or await self._next_turn(asleep, wake.not_before):
            turn.task = asyncio.create_task(self._run(turn))
            self._turn = turn
            try:
                await asyncio.wait([turn.task])
            finally:
                await run_shielded(cancel_and_wait([turn.task]))
                self._turn = None
            if turn.is_waiting or turn.has_ended:  # a whole reply leaves no tools to continue
                return
            asleep = turn.times.asleep(self._agent.dependencies.clock.now())
            await self._log.flush()  # from then on, a user's message starts another run
            is_followed = turn.is_followed
            if not is_followed and await self._agent.cut_off(self._thread_id, asleep) is None:
                return
            turn = None

    async def store_stop(self, turn: LiveTurn) -> None:
        current_turn.set(turn)
        await self._store_end(turn, None)

    async def _taken(self) -> LiveTurn | None:
        turn = LiveTurn(self._log, self._right)
        return turn if await turn.take() else None

    async def _next_turn(self, asleep: Asleep, called_at: float) -> LiveTurn | None:
        """Return the turn on which this process must work next, ``None`` if there is none.

        If tools that belong to no run can continue, a run starts, once for the time of the call.
        """
        if await self._right.open_run() is not None:
            return await self._taken()
        turn = LiveTurn(self._log, self._right)
        if (queued := await self._right.queued()) is not None:
            with suppress(BusyError):
                await turn.begin(queued, works=True)
            return None if turn.run is None else turn
        end = await end_of(self._agent, self._thread_id, asleep=asleep)
        if end is None or not end.can_continue:
            until = min([*asleep.values(), math.inf if end is None else end.until])
            await self._right.looked(until)
            if until < math.inf:
                await self._look(until)
            return None
        last = end.around.last.id
        if last not in shown_in(
            await self._log.read(0)
        ):  # from a terminal, which reports no events
            await self._log.put(MISSED)
        why = f"at_{called_at!r}" if called_at else "resumed"
        with suppress(BusyError):
            begins = started(self._log.shown_id, f"run_{last}_{why}")
            await turn.begin(begins, works=True)
        turn.is_resumed = True
        return None if turn.run is None else turn

    async def _run(self, turn: LiveTurn) -> None:
        current_turn.set(turn)
        turn.suspension.enter()
        try:
            await self._take_to_its_end(turn)
        except asyncio.CancelledError:
            if self._agent.dependencies.suspension.begun:
                await turn.hand_over()
            elif not turn.has_ended:  # the stop came during the last write otherwise
                await run_shielded(self._stop(turn))
        except OtherVersionError as other:
            await self._wait(turn, version=other.version)
        except RefusedError as error:
            await self._fail(turn, str(error))
        except (StoreError, UnreachableError) as error:  # a later worker may reach the store
            logger.warning("thread %r: a turn was cut off: %s", self._thread_id, error)
            await turn.hand_over()
        except (AnabranchError, ModelError) as error:
            await self._fail(turn, str(error))
        except Exception:  # the page shows no internal error, so the log does
            logger.exception("thread %r: a turn failed", self._thread_id)
            await self._fail(turn, "The run failed. See the server's log.")

    async def _take_to_its_end(self, turn: LiveTurn) -> None:
        events, run = await turn.read(), turn.run
        if run is None or not events:  # the process died before storing the run
            await turn.drop()
        elif run.attempt >= MOST_ATTEMPTS:
            raise AnabranchError(GIVEN_UP)
        elif STOP in events or await self._was_stopped(turn):
            await self._stop(turn)
        else:
            agent = with_front_end(self._agent.of_run(run.id), turn.front_end)
            work = TurnWork(agent, self._thread)
            last = await work.run(run.id, turn.message, is_new=turn.is_new)
            await self._end(turn, work, last)

    async def _was_stopped(self, turn: LiveTurn) -> bool:
        end = await end_of(self._agent, self._thread_id) if turn.is_resumed else None
        return end is not None and end.is_cut_off and await turn.follows_a_stop()

    async def _end(self, turn: LiveTurn, work: TurnWork, last: Node) -> None:
        """Run everything that can continue below ``last``; then report how the turn ends."""
        asked, asleep, until = list[Interrupt](), Asleep(), math.inf
        is_open = False
        while last.kind in ASIDE or last.tool_uses:
            asleep = turn.times.asleep(self._agent.dependencies.clock.now())
            end = await end_of(self._agent, self._thread_id, asleep=asleep)
            if end is None or not (end.can_continue or end.is_unread):
                is_there = end is not None and end.around.last.id == last.id
                end = end if is_there else await end_of(self._agent, self._thread_id, last.id)
                if end is not None:
                    asked, until = await self._questions.asked_at(end), end.until
                    is_open = bool(end.questions)
                break
            last = await work.resume(end.around)
        until = min([*asleep.values(), until])
        if is_open:
            await turn.ask(asked, 0.0 if until == math.inf else until)
            if until < math.inf:
                await self._look(until)
        elif until < math.inf:
            await self._wait(turn, until=until)
        else:
            await turn.succeed()

    async def _wait(self, turn: LiveTurn, *, version: str = "", until: float = 0.0) -> None:
        run = await turn.hand_over(is_called=True, version=version, until=until)
        if run is not None:
            await self._wake(run)

    async def _stop(self, turn: LiveTurn) -> None:
        """Undo the effects of a stopped turn's sleeping calls, and end its open tools.

        These include tools that the stop kept from starting: otherwise another run starts them.
        """
        try:
            end = await end_of(self._agent, self._thread_id)
            if turn.has_slept or (end is not None and end.is_cut_off):
                agent = self._agent if turn.run is None else self._agent.of_run(turn.run.id)
                await agent.interrupt_tools(self._thread_id)
        except AnabranchError as error:
            logger.warning(
                "thread %r: the effects of a stopped run are undone when its calls expire: %s",
                self._thread_id,
                error,
            )
        await self._store_end(turn, None)
        await turn.stop()

    async def _fail(self, turn: LiveTurn, message: str) -> None:
        """Report the reason why a turn failed, even if a user stops the turn meanwhile."""

        async def fail() -> None:
            await self._store_end(turn, message)
            await turn.fail(message)

        if not turn.has_ended:  # the head may belong to the next run otherwise
            await run_shielded(fail())

    async def _store_end(self, turn: LiveTurn, error: str | None) -> None:
        try:
            run, message = turn.run, turn.message
            agent = self._agent if run is None else self._agent.of_run(run.id)
            is_said = True
            if run is not None and message is not None:
                is_said = await TurnWork(agent, self._thread).keep(run.id, message)
            if is_said or error is not None:
                await end_turn(agent, self._thread_id, None, error)
        except AnabranchError as problem:
            name = self._thread_id
            logger.warning("thread %r: could not store the end of a turn: %s", name, problem)
