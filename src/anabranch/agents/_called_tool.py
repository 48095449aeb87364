"""An anabranch tool as a tool of an agent: its call runs live in this process.

The agent's model answers the tool's samples, and the person its questions. Each question becomes a
node that contains the call's journal, so that the call can be resumed from there.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_json

from anabranch._asking.host import Host
from anabranch._encodable import encodable
from anabranch._engine import Answer, Ask, Call, Journal, Notice
from anabranch._engine.clock import SystemIds
from anabranch._opening import Runtime, new_journal, open_call
from anabranch._shielded import run_shielded
from anabranch.agents._agent_tools import Outcome, ToolUse
from anabranch.agents._events import ToolNoticed
from anabranch.agents._tool_questions import stored_with
from anabranch.errors import ToolError
from anabranch.messages import ElicitReply, ToolSpec
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
        clock = here.timeline.dependencies.clock
        return await self._run(here, new_journal(Runtime(clock=clock, ids=_CallOf(here))))

    async def resume(self, here: ToolUse, question: Node, reply: ElicitReply) -> Outcome:
        """Resume the call that has asked ``question``, with ``reply`` as the answer.

        Steps that had finished when the question was first answered are replayed from the journal.
        A step that was running at that moment runs again, under the same idempotency key.

        Raises:
            ToolError: the question was stored by another release of this library, or was loaded
                from a file.
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
        journal.answer({str(stored_with(question, "step_id")): _answer(reply)})
        return await self._run(here, journal)

    async def _run(self, here: ToolUse, journal: Journal) -> Outcome:
        async def deliver(notice: Notice) -> None:
            await here.emit(ToolNoticed(here.caller.id, here.block, notice))

        dependencies = here.timeline.dependencies
        offered = dependencies.capabilities
        runtime = Runtime(
            clock=dependencies.clock,
            parent_messages=await here.timeline.messages_before(here.caller),
            parent_system_prompt=here.timeline.thread.system_prompt,
        )
        call = open_call(
            self.tool,
            self.tool.validate(here.block.input),
            journal,
            host=Host(offered, dependencies.model, own=offered),
            runtime=runtime,
            sink=deliver,
        )
        try:
            async with call:
                value = await self._drive(here, call)
        except asyncio.CancelledError:
            if call.compensations.bound and call.scheduler.failure is None:
                await run_shielded(_record_undone(here))
            raise
        return Outcome(_text(value))

    async def _drive(self, here: ToolUse, call: Call[Any]) -> object:
        """Run the call until it returns.

        If it is interrupted while one of its questions is stored and unanswered, it is suspended
        as by a crash instead of being undone: the stored question relies on the steps before it.
        """
        stored: set[str] = set()
        try:
            return await call.drive(lambda ask: self._ask(here, call, ask, stored))
        except asyncio.CancelledError:
            if any(call.is_open(step_id) for step_id in stored):
                call.abort(InterruptedError("interrupted at a question"))
            raise

    async def _ask(self, here: ToolUse, call: Call[Any], ask: Ask, stored: set[str]) -> Answer:
        def state() -> str:
            stored.add(ask.step_id)
            return call.journal.dumps()

        data: dict[str, JsonValue] = {
            "step_id": ask.step_id,
            "request": ask.request.model_dump(mode="json", exclude_none=True),
        }
        async with here.questions.lock:
            answer = _answer(await here.questions.ask(here.block.id, ask.request, data, state))
            # Under the lock: the state that is stored with the next question has this answer.
            call.answer(ask.step_id, answer)
        return answer


@dataclass(frozen=True, slots=True)
class _CallOf:
    """Names the call of a tool use, the same each time that it runs, so that effects keep keys."""

    here: ToolUse

    def call_id(self) -> str:
        """Return a name made of the ids of the caller and of the tool use."""
        place = f"{self.here.caller.id}/{self.here.block.id}"
        return f"call_{blake2b(place.encode('utf-8', 'surrogatepass'), digest_size=9).hexdigest()}"

    def secret(self) -> str:
        """Return a secret of this run: the id above can be computed by anyone who sees the thread."""
        return SystemIds().secret()


async def _record_undone(here: ToolUse) -> None:
    """Record that an interrupted call is undone: services know its keys, so it must not run again."""
    try:
        await here.record(Outcome(NO_RESULT, is_error=True))
    except Exception:  # the interruption is about to be raised, and must not be replaced
        logger.exception("that tool %r was undone could not be stored", here.block.name)


def _answer(reply: ElicitReply) -> Answer:
    return Answer(reply.model_dump(mode="json", exclude_none=True))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(encodable(value), indent=2, by_alias=True).decode()
