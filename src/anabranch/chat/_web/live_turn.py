"""A turn that is running in a thread: its run in AG-UI's sense, and the question it waits at.

In AG-UI a run that waits for a person has ended, with an interrupt; another run goes on from there. So
one turn reports as several runs, one after the other.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field

from ag_ui.core import (
    PROTOCOL_VERSION,
    BaseEvent,
    Interrupt,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
)

from anabranch.agents import Event, NodeAdded
from anabranch.chat._web.event_mapping import EventMapping
from anabranch.chat._web.thread_log import ThreadLog
from anabranch.messages import ElicitReply

__all__ = ["LiveTurn", "TurnLeftError", "current_turn"]

current_turn: ContextVar[LiveTurn] = ContextVar("current_turn")


class TurnLeftError(Exception):
    """Ends a turn whose question was left: what its tools did is stored, the model is not asked."""


@dataclass
class OpenQuestion:
    """The question that the turn waits at, and where its answer is delivered."""

    node_id: str
    reply: asyncio.Future[ElicitReply] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class LiveTurn:
    """One turn.

    Args:
        thread_id: its thread.
        log: where it reports.

    Attributes:
        question: what it waits at, ``None`` while it works.
        left: whether its question was left for something else.
        task: runs it.
    """

    def __init__(self, thread_id: str, log: ThreadLog) -> None:
        self.thread_id = thread_id
        self.question: OpenQuestion | None = None
        self.left: bool = False
        self.task: asyncio.Task[None] | None = None
        self._log = log
        self._mapping = EventMapping()
        self._run_id = ""

    async def begin_run(self, run_id: str) -> int:
        """Report that a run begins; return after which event.

        Raises:
            StoreError: the store failed, and the run has not begun.
        """
        started = RunStartedEvent(
            thread_id=self.thread_id, run_id=run_id, protocol_version=PROTOCOL_VERSION
        )
        after = await self._log.begin(run_id, started)
        self._run_id = run_id
        self._log.add(self._mapping.begin())
        return after

    async def on_event(self, event: Event) -> None:
        """Report an event of the agent.

        Raises:
            TurnLeftError: the question of the turn was left, and its tools have ended.
        """
        self._log.add(self._mapping.map(event))
        await self._log.room()
        if self.left and isinstance(event, NodeAdded) and event.node.kind == "results":
            raise TurnLeftError

    async def wait(self, node_id: str, interrupt: Interrupt) -> ElicitReply:
        """End the run at a question, which is in the store, and wait for its answer."""
        if self.left:
            return ElicitReply(action="cancel")
        self.question = OpenQuestion(node_id)
        self._finish(RunFinishedInterruptOutcome(type="interrupt", interrupts=[interrupt]))
        try:
            return await self.question.reply
        finally:
            self.question = None

    async def resume(self, run_id: str, reply: ElicitReply) -> int | None:
        """Continue in another run with ``reply`` to the question; return after which event.

        Returns ``None`` if it has been answered differently. The turn must wait at a question.
        """
        if self.question is None:
            raise RuntimeError("the turn waits at no question")
        given = self.question.reply
        if not given.done():
            after = await self.begin_run(run_id)
            given.set_result(reply)
            return after
        return await self._log.last() if given.result() == reply else None

    def succeed(self) -> None:
        """Report that the turn has ended."""
        self._finish(RunFinishedSuccessOutcome(type="success"))

    def stop(self) -> None:
        """Report that the turn was stopped."""
        self._finish(RunFinishedCancelledOutcome(type="cancelled"))

    def fail(self, message: str) -> None:
        """Report why the turn has ended."""
        if self._run_id:
            self._report(RunErrorEvent(message=message))
        self._run_id = ""

    def _finish(
        self,
        outcome: RunFinishedSuccessOutcome
        | RunFinishedInterruptOutcome
        | RunFinishedCancelledOutcome,
    ) -> None:
        if self._run_id:
            interrupted = isinstance(outcome, RunFinishedInterruptOutcome)
            self._log.add(self._mapping.end(suspended=interrupted))
            self._report(
                RunFinishedEvent(thread_id=self.thread_id, run_id=self._run_id, outcome=outcome)
            )
        self._run_id = ""

    def _report(self, event: BaseEvent) -> None:
        self._log.add([event])
