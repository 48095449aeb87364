"""An anabranch tool as a tool of an agent: its call runs live in this process.

The agent's model answers the tool's samples, and the person its questions. Each question becomes a
node that contains the call's journal, so that the call can be resumed from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pydantic import JsonValue

from anabranch._asking.host import Host
from anabranch._durable.job import Job
from anabranch._durable.service import CallService
from anabranch._engine import Answer, Ask, Call, Journal, Notice
from anabranch._opening import Runtime, new_journal
from anabranch._shielded import run_shielded
from anabranch.agents._agent_tools import Outcome, ToolUse
from anabranch.agents._call_expiry import principal_of, runtime_at
from anabranch.agents._events import ToolNoticed
from anabranch.agents._result_blocks import result_blocks
from anabranch.agents._tool_questions import reply_data, reply_of, stored_with
from anabranch.agents._turn_limits import TurnLimitError
from anabranch.errors import ToolError
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, ToolSpec, text_of
from anabranch.tool import Tool
from anabranch.tree import NO_RESULT, Node

__all__ = ["CalledTool"]

logger: logging.Logger = logging.getLogger("anabranch.agents")


class CalledTool:
    """An :class:`~anabranch.agents.AgentTool` that calls the anabranch tool ``tool``."""

    placeholder: str | None = None

    def __init__(self, tool: Tool[Any]) -> None:
        self.tool = tool
        self.spec: ToolSpec = ToolSpec(
            name=tool.name, description=tool.description, input_schema=tool.input_schema
        )

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.tool.name

    async def use(self, here: ToolUse) -> Outcome:
        """Call the tool.

        Raises:
            AnabranchError: what the call raises.
        """
        runtime = Runtime(clock=here.timeline.dependencies.clock)
        journal = new_journal(runtime, _call_id(here))
        return await self._run(here, journal, {}, differs=False)

    async def resume(self, here: ToolUse, question: Node, reply: ElicitReply) -> Outcome:
        """Resume the call that has asked ``question``, with ``reply`` as the answer.

        Steps that had finished when the question was first answered are replayed from the journal.
        A step that was running at that moment runs again, under the same idempotency key. Another
        answer than the first begins a line of the call with effects and keys of its own.

        Raises:
            ToolError: the question was stored by another release of this library, or was loaded
                from a file; or what the call had done before it has been undone.
            AnabranchError: what the call raises.
        """
        followers = await here.timeline.dependencies.store.children(question.id)
        states = (node.data["state"] for node in followers if "state" in node.data)
        try:
            journal = Journal.loads(str(next(states, None) or stored_with(question, "state")))
        except ValueError as problem:
            raise ToolError(
                f"The question {question.id!r} cannot be answered: {problem}."
            ) from None
        first = next((reply_of(node) for node in followers if node.kind == "answer"), reply)
        differs = reply_data(first) != reply_data(reply)
        answers = {str(stored_with(question, "step_id")): _answer(reply)}
        return await self._run(here, journal, answers, differs=differs)

    async def _run(
        self, here: ToolUse, journal: Journal, answers: Mapping[str, Answer], *, differs: bool
    ) -> Outcome:
        async def deliver(notice: Notice) -> None:
            await here.emit(ToolNoticed(here.caller.id, here.block, notice))

        dependencies = here.timeline.dependencies
        offered = dependencies.capabilities
        service = CallService(await runtime_at(dependencies, here.caller), dependencies.calls)
        job = Job(
            self.tool,
            self.tool.validate(here.block.input),
            Host(offered, _TurnModel(here), own=offered),
            deliver,
            principal_of(here.caller),
        )
        await service.find_line(job, journal, answers, differs=differs)
        live = _LiveCall(here, service, answers)
        try:
            value = await service.run_live(job, journal, live.drive, resumable=True)
        except asyncio.CancelledError:
            if live.is_undone:
                await run_shielded(_record_undone(here))
            raise
        blocks = result_blocks(value)
        return Outcome(text_of(blocks), blocks=blocks)


@dataclass(frozen=True, slots=True)
class _TurnModel:
    """The agent's model, which answers a tool's samples within the limits of the turn.

    The call has an account of its own; what its samples take of the turn is reserved here, where a
    request can wait for others of the turn.
    """

    here: ToolUse

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Answer ``request``.

        Raises:
            ToolError: a limit of the turn is used up, in words that can be recorded.
            Exception: what the model raises.
        """
        try:
            return await self.here.sample(request)
        except TurnLimitError as refusal:
            raise ToolError(str(refusal)) from None


class _LiveCall:
    """One run of a call, whose questions are asked as nodes of the tree.

    Args:
        here: the use of the tool.
        service: runs the call.
        answers: to what the call had asked before.
    """

    def __init__(self, here: ToolUse, service: CallService, answers: Mapping[str, Answer]) -> None:
        self._here = here
        self._service = service
        self._answers = answers
        self._call: Call[Any] | None = None
        self._stored: set[str] = set()

    @property
    def is_undone(self) -> bool:
        """Whether the run was ended by undoing what it had done."""
        call = self._call
        return call is not None and call.compensations.bound and call.scheduler.failure is None

    async def drive(self, call: Call[Any]) -> object:
        """Run the call until it returns.

        If it is interrupted while one of its questions is stored and unanswered, it is suspended
        as by a crash instead of being undone: the stored question relies on the steps before it.
        """
        self._call = call
        for step_id, answer in self._answers.items():
            if call.cursor.is_pending(step_id):
                call.cursor.answer(step_id, answer)
        try:
            return await call.drive(lambda ask: self._ask(call, ask))
        except asyncio.CancelledError:
            if any(call.is_open(step_id) for step_id in self._stored):
                call.abort(InterruptedError("interrupted at a question"))
            raise

    async def _ask(self, call: Call[Any], ask: Ask) -> Answer:
        def state() -> str:
            self._stored.add(ask.step_id)
            return call.journal.dumps()

        data: dict[str, JsonValue] = {
            "step_id": ask.step_id,
            "request": ask.request.model_dump(mode="json", exclude_none=True),
        }
        questions = self._here.questions
        async with questions.lock:
            await self._service.postpone_expiry(call.journal)
            answer = _answer(await questions.ask(self._here.block.id, ask.request, data, state))
            # Under the lock: the state that is stored with the next question has this answer.
            call.answer(ask.step_id, answer)
        return answer


def _call_id(here: ToolUse) -> str:
    """Name the call of a tool use, the same each time that it runs, so that effects keep keys."""
    place = f"{here.caller.id}/{here.block.id}"
    return f"call_{blake2b(place.encode('utf-8', 'surrogatepass'), digest_size=9).hexdigest()}"


async def _record_undone(here: ToolUse) -> None:
    """Record that an interrupted call is undone: services know its keys, so it must not run again."""
    try:
        await here.record(Outcome(NO_RESULT, is_error=True))
    except Exception:  # the interruption is about to be raised, and must not be replaced
        logger.exception("that tool %r was undone could not be stored", here.block.name)


def _answer(reply: ElicitReply) -> Answer:
    return Answer(reply_data(reply))
