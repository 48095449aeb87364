"""A turn that this process works on, reported as a run in AG-UI's sense.

A run that waits for a person has ended, with an interrupt for each question; another goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from itertools import takewhile

from ag_ui.core import (
    BaseEvent,
    Interrupt,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
)
from pydantic import BaseModel

from anabranch._aio import cancel_and_wait, run_shielded
from anabranch._durable.lease import RenewedLease
from anabranch._durable.run_events import TakenRun
from anabranch.agents import Event, FrontEnd, NodeAdded, ToolSuspended
from anabranch.agents._agent_dependencies import Suspension
from anabranch.chat._web.event_mapping import EventMapping, shown_in
from anabranch.chat._web.log_writer import TextPiece, encoded
from anabranch.chat._web.missed_events import BATCH, missed_events
from anabranch.chat._web.open_run import OpenRun
from anabranch.chat._web.run_input import Message, ends_of_all_open, front_end_in, message_in
from anabranch.chat._web.thread_lease import ThreadLease
from anabranch.chat._web.thread_log import RUN_ENDS, ThreadLog
from anabranch.chat._web.turn_times import TurnTimes
from anabranch.errors import StoreError
from anabranch.tree import Node, Tree

logger: logging.Logger = logging.getLogger("anabranch.chat.web")

STOPPED = b'"outcome":{"type":"cancelled"'
"""Is in the last event of a run that was stopped."""

current_turn: ContextVar[LiveTurn] = ContextVar("current_turn")


class LiveTurn:
    """One turn. It reports what happens in it, also while another process works on the run.

    Args:
        log: where it reports.
        right: allows one run at a time.

    Attributes:
        run: the run, as it was when this process took it; ``None`` while it has none.
        task: works on it.
        message: the person's, with which the run begins; ``None`` before its events were read.
        front_end: that of the run.
        is_waiting: whether it was handed over until a time.
        times: when it goes on by itself.
        is_resumed: whether it goes on with what others have stored, and may not have reported.
        suspension: begins when this process has lost the run, or its lease has run out: nothing of
            it is undone here, and none of its failures is recorded.
    """

    def __init__(self, log: ThreadLog, right: ThreadLease) -> None:
        self.run: OpenRun | None = None
        self.task: asyncio.Task[None] | None = None
        self.message: Message | None = None
        self.front_end: FrontEnd = FrontEnd()
        self.is_waiting = False
        self.is_resumed = False
        self.suspension: Suspension = Suspension(self._is_over)
        self.times: TurnTimes = TurnTimes()
        self._log = log
        self._right = right
        self._mapping = EventMapping()
        self._lease: RenewedLease | None = None
        self._taken: TakenRun | None = None
        self._is_lost = False
        self._stopping: asyncio.Task[None] | None = None
        self._begun: tuple[int, list[bytes]] | None = None
        self._held: list[BaseModel | TextPiece] = []
        self._after = 0

    @property
    def is_new(self) -> bool:
        """Whether the run has begun in this process, which has its right still: nothing is done yet."""
        return self._begun is not None and self._lease is not None and not self._is_lost

    @property
    def is_taken_over(self) -> bool:
        """Whether others may have stored what they have not reported."""
        return self.is_resumed or (self.run is not None and self.run.attempt > 0)

    async def begin(self, started: RunStartedEvent) -> int:
        """Report that a run begins; return after which event.

        A run that has begun before, in whatever process, does not begin again. Whatever happens,
        :meth:`hand_over` must follow.

        Raises:
            BusyError: another run has not ended.
            StoreError: the store failed; the run has begun or not.
        """
        event = encoded(started)
        begun = await self._right.begin(started.run_id, event, self._on_lost)
        if begun is None:
            return await self._log.begun(started.run_id) or 0
        self._lease, number, self.times.alarm = begun
        self.run, self._begun = OpenRun.of(self._lease.owner), (number - 1, [event])
        return number - 1

    async def take(self, run: OpenRun, *, to_end: bool = False) -> bool:
        """Take a run of the thread, if it waits for a worker such as this process.

        With ``to_end``, that does not matter: the run is ended.

        Raises:
            StoreError: the store failed.
        """
        taken = await self._right.take(run, self._on_lost, to_end=to_end)
        if taken is not None:
            self.run, (self._lease, self._taken) = run, taken
        return taken is not None

    async def read(self) -> list[bytes]:
        """Return the events of the run so far; end what the process that has died left open.

        From then on, the run stops when it is asked to, and soon if it was asked before. There are no
        events if its beginning was not stored.
        """
        if self._begun is not None:
            self._after, events = self._begun
            self._read_input(events[0])
            self._stopping = asyncio.create_task(self._stop_when_asked(self._after))
            return events
        if self._taken is None or self._taken.begun is None:
            return []
        self._after = self._taken.begun - 1
        self._stopping = asyncio.create_task(self._stop_when_asked(self._after))
        events = await self._log.read(self._after, self._taken.last)
        self._read_input(events[0])
        self._log.add(ends_of_all_open(events), lease=self._lease)
        self._mapping.go_on_after(events)
        return events

    def _read_input(self, begun: bytes) -> None:
        self.message, self.front_end = message_in(begun), front_end_in(begun)

    async def _stop_when_asked(self, after: int) -> None:
        await self._right.asked_to_stop(after)
        if self.task is not None:
            self.task.cancel()

    def _on_lost(self) -> None:
        """Stop, and report nothing: another process runs in the thread by now."""
        self._is_lost = True
        self.suspension.begin()
        if self.task is not None:
            self.task.cancel()

    async def on_event(self, event: Event) -> None:
        """Report an event of the agent: with the run's hand-over, if its worker comes next."""
        events = self._mapping.map(event)
        if self.is_new and self.task is None:
            self._held += events
            return
        is_question = isinstance(event, NodeAdded) and event.node.kind == "question"
        self._log.add(events, lease=self._lease, is_followed=is_question)
        if isinstance(event, ToolSuspended):
            self.times.add(event)
        if isinstance(event, NodeAdded) and event.node.tool_uses:
            await self._log.flush()  # tools begin next: who sees an effect has seen who called it
            self._leave_if_over()  # another process has called them by now
        await self._log.room()

    def _is_over(self) -> bool:
        """Whether the lease has run out, so that another process may have it by now."""
        return self._lease is not None and self._lease.is_over

    def _leave_if_over(self) -> None:
        """Stop as when the lease is lost, wherever in the turn this is noticed."""
        if self.suspension.begun and self.task is not None:
            if self.task is not asyncio.current_task():
                self.task.cancel()
            raise asyncio.CancelledError

    def report_held(self) -> None:
        """Report what has happened, as its worker is this process, which may be at work on others."""
        held, self._held = self._held, []
        self._log.add(held, lease=self._lease)

    async def follows_a_stop(self) -> bool:
        """Whether the run before this one, which has just begun, was stopped."""
        before = reversed(await self._log.read(0, self._after + 1))
        end = next((each for each in before if each.startswith(RUN_ENDS)), b"")
        return STOPPED in end

    async def show_missed(self, nodes: Sequence[Node]) -> None:
        """Report the nodes of a path that the log does not have, as far as they are the run's.

        Those are the ones after the first that is shown in the run: a process may have stored one, and
        not reported it, below which another has. Before any is shown, they are the last ones.
        """
        shown = shown_in(await self._log.read(self._after))
        first = next((at for at, node in enumerate(nodes) if node.id in shown), None)
        if first is None:
            shown = shown_in(await self._log.read(0))
            missed = [*takewhile(lambda node: node.id not in shown, reversed(nodes))][::-1]
        else:
            missed = [node for node in nodes[first:] if node.id not in shown]
        for node in missed:
            await self.on_event(NodeAdded(node))

    async def show_missed_beside(self, nodes: Sequence[Node], tree: Tree) -> None:
        """Report the nodes of branches, and the results of tools, that the log does not have.

        ``nodes`` is the main path, whose nodes are reported, and ``tree`` the thread.
        """
        in_run = shown_in(await self._log.read(self._after))
        at = next((at for at, node in enumerate(nodes) if node.id in in_run), len(nodes) - 1)
        while nodes[at].kind in BATCH and at:  # the tools may have been called in a run before
            at -= 1
        for event in missed_events(tree, nodes[at].id, await self._log.read(0)):
            await self.on_event(event)

    @property
    def has_slept(self) -> bool:
        """Whether a call of it slept when this process took it, or later, and may sleep still."""
        return self.times.has_slept or (self.run is not None and self.run.until > 0)

    async def ask(self, interrupts: list[Interrupt], until: float = 0.0) -> None:
        """Report that the run waits for the answers to these questions, which are in the store.

        Without one, it waits for the front end alone, whose calls are open: AG-UI has that as a success.
        With ``until``, the thread is looked at then, if no run begins before.
        """
        if interrupts:
            asked = RunFinishedInterruptOutcome(type="interrupt", interrupts=interrupts)
            await self._finish(asked, until, goes_on=True)
        else:
            success = RunFinishedSuccessOutcome(type="success")
            await self._finish(success, until, goes_on=True)

    async def succeed(self, *, is_empty: bool = False) -> None:
        """Report that the turn has ended; ``is_empty`` says that nothing was to be done in it."""
        until = self.times.earliest() if is_empty else 0.0
        await self._finish(RunFinishedSuccessOutcome(type="success"), until)

    async def stop(self) -> None:
        """Report that the turn was stopped."""
        await self._finish(RunFinishedCancelledOutcome(type="cancelled"), self.times.earliest())

    async def fail(self, message: str) -> None:
        """Report why the turn has ended."""
        await self._end(RunErrorEvent(message=message), until=self.times.earliest())

    async def hand_over(
        self, *, is_called: bool = False, version: str = "", until: float = 0.0
    ) -> OpenRun | None:
        """Have the run wait for a worker; return it, ``None`` if it has ended, or never begun.

        ``is_called`` says that a worker is called next; else one is looked for. With a ``version``,
        only a worker of that version takes the run; with ``until``, one is looked for at that time.
        A run that was lost is left as it is; a worker finds what was stored here meanwhile.
        """
        if (lease := await self._leave()) is None:
            return None
        self.is_waiting = bool(until)
        try:
            held = [encoded(each) for each in self._held]
            return await self._right.hand_over(
                lease, held, is_called=is_called, version=version, until=until
            )
        except StoreError as error:
            name = self._log.thread_id
            logger.warning("thread %r: a run waits until its lease has run out: %s", name, error)
            return OpenRun.of(lease.owner)

    async def drop(self) -> None:
        """Release the thread; nothing is reported."""
        if (lease := await self._leave()) is not None:
            async with lease:
                pass

    async def _finish(
        self,
        outcome: RunFinishedSuccessOutcome
        | RunFinishedInterruptOutcome
        | RunFinishedCancelledOutcome,
        until: float = 0.0,
        *,
        goes_on: bool = False,
    ) -> None:
        if self.run is None:
            return
        ended = RunFinishedEvent(
            thread_id=self._log.shown_id, run_id=self.run.run_id, outcome=outcome
        )
        await self._end(*self._mapping.end(suspended=goes_on), ended, until=until)

    async def _end(self, *events: BaseEvent, until: float = 0.0) -> None:
        """Report the end of the run, if one is in progress; the events release its lease.

        If the thread is to be looked at later, its alarm replaces the lease.
        """
        if (lease := await self._leave()) is not None:
            await run_shielded(lease.give_up())
            if self._is_lost:
                return
            last = (*self._held, *events)
            if until:
                encoded_last = [encoded(each) for each in last]
                await run_shielded(self._right.end(lease, encoded_last, until))
            else:
                self._log.add(last, lease=lease, release=True)

    async def _leave(self) -> RenewedLease | None:
        """Stop to wait for a stop; return the lease, once."""
        lease, self._lease = self._lease, None
        if lease is not None and self._stopping is not None:
            await run_shielded(cancel_and_wait([self._stopping]))
        return lease


async def stop_run(
    log: ThreadLog,
    right: ThreadLease,
    call: Callable[[OpenRun], Awaitable[object]],
    store_end: Callable[[LiveTurn], Awaitable[object]] | None = None,
) -> bool:
    """Stop the run that has not ended, and wait for its end; return whether there was one.

    A worker ends one that waits for a time; ``call`` calls it. ``store_end`` stores how one ends
    that no worker has taken.

    Raises:
        StoreError: the store failed.
    """
    if (run := await right.open_run()) is None:
        return False
    turn = LiveTurn(log, right)
    if await turn.take(run, to_end=True):  # no worker has taken it yet
        try:
            await turn.read()
            if store_end is not None:
                await store_end(turn)
            await turn.stop()
        finally:
            await run_shielded(turn.hand_over())
        await log.flush()
    else:
        await right.ask_to_stop(call)
    return True
