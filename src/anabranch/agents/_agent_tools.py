"""Tools as an agent uses them: what the model is told of one, and what it gives back.

Owns the port, and the one way in which every anabranch tool fills it: the call machine, run live,
with the agent's own model for its samples and the person for its questions. Each question becomes
a node with the call's journal in it, so that it can be answered again, or after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_json

from anabranch._asking.host import Capabilities, Host
from anabranch._engine import Answer, Ask, Call, Journal, Notice
from anabranch._opening import Runtime, new_journal, open_call
from anabranch.agents._events import ToolNoticed
from anabranch.errors import AnabranchError, StoreError, ToolError
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    ToolSpec,
    UrlRequest,
)
from anabranch.tool import Tool
from anabranch.tree import Node

if TYPE_CHECKING:
    from anabranch.agents._tool_batch import ToolUse

__all__ = ["AgentTool", "CalledTool", "Outcome", "kept_with", "question_of"]

logger: logging.Logger = logging.getLogger("anabranch.agents")
_QUESTION: TypeAdapter[ElicitRequest | UrlRequest] = TypeAdapter(ElicitRequest | UrlRequest)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tool gives back to the model.

    Attributes:
        text: told to it.
        is_error: whether the tool has failed.
    """

    text: str
    is_error: bool = False


class AgentTool(Protocol):
    """What a model may call. Whatever ``use`` raises is told as a masked error.

    Attributes:
        spec: what the model is told of it.
        placeholder: what stands for the results of all tools of an answer while they run, this
            one among them; ``None`` if it lets nobody look at them meanwhile.
    """

    spec: ToolSpec
    placeholder: str | None

    @property
    def name(self) -> str:
        """What the model calls it by."""
        ...

    async def use(self, here: ToolUse) -> Outcome:
        """Do what the model wants."""
        ...


class CalledTool:
    """An anabranch tool, run live by the call machine."""

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
        """Call the tool."""
        return await self._run(here, new_journal(_runtime(here)))

    async def resume(self, here: ToolUse, question: Node, reply: ElicitReply) -> Outcome:
        """Go on with the call that has asked ``question``, as if it was answered only now.

        What the call had done when it was first answered is not done again; what it was doing just
        then is, under the same idempotency key.

        Raises:
            ToolError: another release of this library has asked, or the question comes from a
                file that lacks the call.
        """
        followers = await here.turn.agent.store.children(question.id)
        states = (node.data["state"] for node in followers if "state" in node.data)
        try:
            journal = Journal.loads(str(next(states, None) or kept_with(question, "state")))
        except ValueError as problem:
            raise ToolError(
                f"The question {question.id!r} cannot be answered: {problem}."
            ) from None
        journal.answer({str(kept_with(question, "step_id")): _answer(reply)})
        return await self._run(here, journal)

    async def _run(self, here: ToolUse, journal: Journal) -> Outcome:
        async def deliver(notice: Notice) -> None:
            await here.tell(ToolNoticed(here.caller.id, here.use, notice))

        try:
            call = open_call(
                self.tool,
                self.tool.validate(here.use.input),
                journal,
                host=Host(Capabilities(), here.turn.agent.model),
                runtime=_runtime(here),
                sink=deliver,
            )
            async with call:
                value = await self._drive(here, call)
        except StoreError:  # masked, as what is no error of the call's
            raise
        except AnabranchError as error:
            return Outcome(str(error), is_error=True)
        return Outcome(_text(value))

    async def _drive(self, here: ToolUse, call: Call[Any]) -> object:
        """Run the call to its end.

        If it is interrupted while a question of its is kept, it waits there with all that it has
        done: it is left as by a crash, lest what the question stands on be undone under it.
        """
        kept: set[str] = set()
        try:
            return await call.drive(lambda ask: self._ask(here, call, ask, kept))
        except asyncio.CancelledError:
            if any(call.is_open(step_id) for step_id in kept):
                call.break_off(InterruptedError("interrupted at a question"))
            raise

    async def _ask(self, here: ToolUse, call: Call[Any], ask: Ask, kept: set[str]) -> Answer:
        def state() -> str:
            kept.add(ask.step_id)
            return call.journal.dumps()

        data: dict[str, JsonValue] = {
            "step_id": ask.step_id,
            "request": ask.request.model_dump(mode="json", exclude_none=True),
        }
        async with here.asking:
            answer = _answer(await here.ask(ask.request, data, state))
            # Here, and not when this has returned: the next question's state is to have it.
            call.answer(ask.step_id, answer)
        return answer


def question_of(node: Node) -> ElicitRequest | UrlRequest:
    """Return what the question ``node`` asks.

    Raises:
        ToolError: the node comes from a file that does not say.
    """
    try:
        return _QUESTION.validate_python(kept_with(node, "request"))
    except ValidationError:
        raise _lacking(node) from None


def kept_with(question: Node, name: str) -> JsonValue:
    """Return what was kept with a question under this name.

    Raises:
        ToolError: nothing; an export has no more of a question than its text.
    """
    if name not in question.data:
        raise _lacking(question)
    return question.data[name]


def _lacking(question: Node) -> ToolError:
    return ToolError(
        f"The question {question.id!r} comes from an export, which lacks what is needed to answer"
        " it again."
    )


def _runtime(here: ToolUse) -> Runtime:
    return Runtime(clock=here.turn.agent.clock)


def _answer(reply: ElicitReply) -> Answer:
    return Answer(reply.model_dump(mode="json", exclude_none=True))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(value, indent=2, by_alias=True).decode()
