"""An anabranch tool as a tool of an agent: its call runs live in this process.

The agent's model answers the tool's samples, and the person its questions. Each question becomes a
node that contains the call's journal, so that the call can be resumed from there.
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_json

from anabranch._asking.host import Capabilities, Host
from anabranch._engine import Answer, Ask, Call, Journal, Notice
from anabranch._foreign_text import encodable
from anabranch._opening import Runtime, new_journal, open_call
from anabranch.agents._agent_tools import Outcome, ToolUse
from anabranch.agents._events import ToolNoticed
from anabranch.agents._tool_questions import stored_with
from anabranch.errors import ToolError
from anabranch.messages import ElicitReply, ToolSpec
from anabranch.tool import Tool
from anabranch.tree import Node

__all__ = ["CalledTool"]


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
        return await self._run(here, new_journal(_runtime(here)))

    async def resume(self, here: ToolUse, question: Node, reply: ElicitReply) -> Outcome:
        """Resume the call that has asked ``question``, with ``reply`` as the answer.

        Steps that had finished when the question was first answered are replayed from the journal.
        A step that was running at that moment runs again, under the same idempotency key.

        Raises:
            ToolError: the question was stored by another release of this library, or comes from
                an export that lacks the call.
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

        call = open_call(
            self.tool,
            self.tool.validate(here.block.input),
            journal,
            host=Host(Capabilities(), here.timeline.dependencies.model),
            runtime=_runtime(here),
            sink=deliver,
        )
        async with call:
            value = await self._drive(here, call)
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


def _runtime(here: ToolUse) -> Runtime:
    return Runtime(clock=here.timeline.dependencies.clock)


def _answer(reply: ElicitReply) -> Answer:
    return Answer(reply.model_dump(mode="json", exclude_none=True))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(encodable(value), indent=2, by_alias=True).decode()
