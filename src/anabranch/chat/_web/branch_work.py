"""The branches of one conversation that any worker works on: how they are called for, and worked on.

A branch is a call of its own, ``THREAD/BRANCH``, under a lease of that name: while its run goes on, it
waits for a worker, or for a time, or is worked on. What it has done is in the tree before its lease is
released; then its worker looks whether that lets the run go on, or a branch around it. Several may see the
same at once, and call twice: then one finds nothing to do. While a branch sleeps, its run may end at a
person's questions; a worker that finds no run has another one begin.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

from anabranch._aio import cancel_and_wait, pause, run_shielded
from anabranch.agents import Agent, BranchResumed, PathEnd
from anabranch.agents._branch_worker import BranchWorker
from anabranch.chat._web.live_branch import LiveBranch
from anabranch.chat._web.live_turn import current_turn
from anabranch.chat._web.log_writer import LogWriter
from anabranch.chat._web.open_run import OpenRun
from anabranch.chat._web.thread_lease import SOON, ThreadLease
from anabranch.chat._web.thread_log import ThreadLog
from anabranch.errors import AnabranchError, OtherVersionError, StoreError, UnreachableError
from anabranch.tree import Node

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

MOST_ATTEMPTS = 5
"""How many processes may die over one run, or over one branch."""

Asleep: TypeAlias = Mapping[tuple[str, str], float]
"""What waits for a time: tool uses, each after its caller, and branches, by their first nodes."""

GIVEN_UP = f"This branch was cut off {MOST_ATTEMPTS} times, and is not tried again."
CUT_OFF = (
    "This branch was cut off while a tool ran. What the tool had done is not stored, so it is not run"
    " again."
)


def branch_call(thread_id: str, start_id: str) -> str:
    """Return the name of a branch among calls and leases; that of a thread has no slash."""
    return f"{thread_id}/{start_id}"


def split_call(call: str) -> tuple[str, str]:
    """Return the thread of a call, and its branch, which is empty for the call of a run."""
    thread_id, _, start_id = call.partition("/")
    return thread_id, start_id


class BranchWork:
    """The branches of one conversation.

    Args:
        agent: works on them.
        log: the thread's events.
        right: the right to run in the thread.
        writer: stores leases, and what is reported.
        wake: calls a worker for a run, or for a branch: by the name of its call.
    """

    def __init__(
        self,
        agent: Agent,
        log: ThreadLog,
        right: ThreadLease,
        writer: LogWriter,
        wake: Callable[[str, OpenRun], Awaitable[None]],
    ) -> None:
        self._agent = agent
        self._worker = BranchWorker(agent)
        self._log = log
        self._right = right
        self._writer = writer
        self._wake = wake
        self._going: set[LiveBranch] = set()

    @property
    def is_idle(self) -> bool:
        """Whether this process works on no branch."""
        return not self._going

    # -- calling workers ---------------------------------------------------------------------

    async def call(self, starts: Iterable[Node]) -> None:
        """Call workers for branches; nothing happens for those that have one, or wait for one.

        Those that sleep do no longer.
        """
        for start in starts:
            right = self._right_to(start.id)
            run = await right.call(start.id) or await right.rouse()
            if run is not None:
                await self._wake(branch_call(self._log.thread_id, start.id), run)

    async def look(self, asleep: Asleep) -> tuple[PathEnd | None, dict[tuple[str, str], float]]:
        """Return the end of the thread, and all that sleeps there, with what is known to be ``asleep``."""
        end = await self._agent.end(self._log.thread_id, asleep=asleep)
        if end is not None and end.branches:
            asleep = {**asleep, **await self._asleep()}
            end = await self._agent.end(self._log.thread_id, asleep=asleep)
        return end, dict(asleep)

    async def _asleep(self) -> dict[tuple[str, str], float]:
        """Return the branches that wait for a time, by their first nodes, and until when."""
        found, now = dict[tuple[str, str], float](), self._writer.clock.now()
        for start in await self._worker.open_in(self._log.thread_id):
            held = await self._right_to(start.id).held()
            if held is not None and held.until > now:
                found[start.id, ""] = held.until
        return found

    async def call_all(self, asleep: Asleep | None = None) -> None:
        """Call workers for all branches with which they can go on, or for the run if it can go on.

        The run waits: what has ended, or was answered, before it did has found no one to call. What
        sleeps is left out where tools of the run are known to be ``asleep``; else it looks again.
        """
        if not self._agent.dependencies.shares_branches:
            return
        if asleep is None:
            end, asleep = await self._agent.end(self._log.thread_id), {}
        else:
            end, asleep = await self.look(asleep)
        await self.call(() if end is None else end.branches)
        waits = end is not None and (end.branches or (asleep and not end.questions))
        if end is None or end.goes_on_here or not waits:
            await self._rouse()

    async def _rouse(self) -> None:
        if (run := await self._right.rouse()) is not None:
            await self._wake(self._log.thread_id, run)

    async def _begin_again(self) -> None:
        """Have a run begin, if something can go on for which there is none."""
        end, _ = await self.look({})
        if end is not None and end.can_go_on and (alarm := await self._right.ring()) is not None:
            await self._wake(self._log.thread_id, alarm)

    async def _call_next(self, start: Node, own: Asleep) -> None:
        """Call workers for what can go on, now that a branch was left: in it, or because of it.

        ``own`` are the tool uses in it that sleep.
        """
        others = {
            each: until for each, until in (await self._asleep()).items() if each[0] != start.id
        }
        asleep = {**others, **own}
        left = await self._worker.left(start, asleep=asleep)
        if left.here or left.branches:
            await self.call([start] if left.here else left.branches)
            return
        roused = await self._worker.roused_by(start, asleep)
        await self.call(roused.branches)
        if roused.here:
            await self._rouse()

    def _right_to(self, start_id: str) -> ThreadLease:
        name = branch_call(self._log.thread_id, start_id)
        version = self._agent.dependencies.version
        return ThreadLease(self._writer.events, self._log, name, self._writer.clock, version)

    # -- stopping ----------------------------------------------------------------------------

    async def end(self) -> bool:
        """Wait until no process works on a branch; return whether workers could go on with one.

        The run has been asked to stop, so those that work on one leave it.
        """
        if not self._agent.dependencies.shares_branches:
            return False
        left = await self._worker.open_in(self._log.thread_id)
        for start in left:
            while not await self._right_to(start.id).is_left():
                await pause(self._writer.clock, SOON)
        return bool(left)

    async def call_off(self) -> None:
        """Wake no branch that sleeps: the person has left what they are for."""
        for start in await self._worker.open_in(self._log.thread_id):
            await self._right_to(start.id).is_left()

    # -- working -----------------------------------------------------------------------------

    async def advance(self, start_id: str) -> None:
        """Take a branch that waits for a worker to its end, or as far as it comes.

        Raises:
            StoreError: the store failed.
        """
        start = await self._agent.store.node(start_id)
        if start is None or start.thread_id != self._log.thread_id:
            return
        right = self._right_to(start_id)
        turn, run = LiveBranch(self._log, right, start), await right.open_run()
        if run is None or not await turn.take(run):
            return
        turn.task = asyncio.create_task(self._run(turn, start))
        self._going.add(turn)
        try:
            await asyncio.wait([turn.task])
        finally:
            await run_shielded(cancel_and_wait([turn.task]))
            self._going.remove(turn)

    async def _run(self, turn: LiveBranch, start: Node) -> None:
        current_turn.set(turn)
        turn.suspension.enter()
        try:
            until = await self._work(turn, start)
        except asyncio.CancelledError:
            if self._agent.dependencies.suspension.begun:
                await turn.hand_over()
            else:
                await run_shielded(self._leave(turn, start))
        except OtherVersionError as other:
            await self._leave(turn, start, version=other.version)
        except (StoreError, UnreachableError) as error:
            logger.warning("branch %r was cut off: %s", start.id, error)
            await turn.hand_over()
        except Exception:  # what ends a branch is in the tree; this did not get there
            logger.exception("branch %r was not worked on; it is tried again", start.id)
            await turn.hand_over()
        else:
            await self._leave(turn, start, until=until)

    async def _work(self, turn: LiveBranch, start: Node) -> float:
        """Work on a branch; return the time for which it waits then, 0 if there is none."""
        run = await self._right.open_run()
        if run is None or turn.run is None or not await turn.follow(run.run_id):
            return 0.0
        worker = BranchWorker(self._agent.of_run(run.run_id))
        left, at = await worker.left(start), ""
        if turn.run.attempt and left.at:
            await self._show_missed(turn, start, left.at)
        if turn.run.attempt >= MOST_ATTEMPTS:
            await worker.fail(start, GIVEN_UP)
        elif turn.run.attempt and left.at_tools and self._agent.dependencies.calls is None:
            await worker.fail(start, CUT_OFF)
        else:
            while left.here:
                if left.at == at:
                    raise StoreError("How the branch has ended could not be stored.")
                at = left.at
                await worker.work_on(start)
                asleep = turn.times.asleep(self._writer.clock.now())
                left = await worker.left(start, asleep=asleep)
            if turn.run.attempt and left.at:
                await turn.show_missed((await self._agent.store.path(left.at)).nodes)
        asleep = turn.times.asleep(self._writer.clock.now())
        until = min([*asleep.values(), left.until])
        return 0.0 if until == math.inf else until

    async def _show_missed(self, turn: LiveBranch, start: Node, last_id: str) -> None:
        """Report the last nodes, which a process has stored, but not reported before it died."""
        path = (await self._agent.store.path(last_id)).nodes
        path = path[path.index(start) :]
        await turn.on_event(BranchResumed(path))
        await turn.show_missed(path[1:])

    async def _leave(
        self, turn: LiveBranch, start: Node, *, version: str = "", until: float = 0.0
    ) -> None:
        try:
            if (run := await turn.leave(version=version, until=until)) is not None:
                await self._wake(branch_call(start.thread_id, start.id), run)
            if turn.is_over:
                await self._rouse()
            elif await self._right.open_run() is None:
                await self._begin_again()
            elif not version:
                await self._call_next(start, turn.times.asleep(self._writer.clock.now()))
        except AnabranchError as error:
            logger.warning(
                "no worker was called after branch %r: %s; it is looked for later", start.id, error
            )
