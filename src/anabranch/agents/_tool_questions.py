"""Questions of tools as nodes of the tree: asked, answered, and read back from the store.

A question node holds the state of the tool's call at that moment, so that the question can be
answered again, or after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_json

from anabranch._encodable import encodable
from anabranch.agents._ports import Question
from anabranch.agents._timeline import Timeline
from anabranch.agents._turn_limits import SideUsage
from anabranch.errors import ToolError
from anabranch.messages import ElicitReply, ElicitRequest, UrlRequest
from anabranch.tree import Node

__all__ = ["ToolQuestions", "question_of", "reply_data", "reply_of", "stored_with"]

_QUESTION: TypeAdapter[ElicitRequest | UrlRequest] = TypeAdapter(ElicitRequest | UrlRequest)


class ToolQuestions:
    """The questions of tools that run at the same time, one below the other on one timeline.

    Attributes:
        last: the node below which the next question is added: the caller of the tools, or the
            last answer.
        lock: must be held while asking, until the answer has been processed.
    """

    def __init__(self, timeline: Timeline, caller: Node, last: Node, side_usage: SideUsage) -> None:
        self.last: Node = last
        self.lock: asyncio.Lock = asyncio.Lock()
        self._timeline = timeline
        self._caller = caller
        self._side_usage = side_usage

    async def ask(
        self,
        tool_use_id: str,
        question: Question,
        data: Mapping[str, JsonValue],
        state: Callable[[], str],
    ) -> ElicitReply:
        """Ask the person; store the question and the answer, each with the state at that time.

        With the question is stored what the tools have used until then.

        Args:
            tool_use_id: the use of the tool that asks.
            question: what is asked.
            data: stored with the question.
            state: returns the state of the tool's call.
        """
        timeline, dependencies = self._timeline, self._timeline.dependencies
        usage, used = self._side_usage.take()
        stored: dict[str, JsonValue] = {
            "caller": self._caller.id,
            "tool_use_id": tool_use_id,
            **used,
            **data,
            "state": state(),
        }
        node = dependencies.node(
            timeline.thread.id,
            self.last.id,
            "question",
            question.message,
            usage=usage,
            data=stored,
        )
        self.last = await timeline.add(node)
        reply = await dependencies.person.elicit(question, step_id=node.id)
        await self.add_answer(reply, state())
        return reply

    async def add_answer(self, reply: ElicitReply, state: str | None = None) -> None:
        """Store the answer to the last question, with the state of the tool's call if given."""
        text = reply.action if reply.content is None else to_json(encodable(reply.content)).decode()
        data = reply_data(reply)
        if state is not None:
            data["state"] = state
        timeline = self._timeline
        self.last = await timeline.add(
            timeline.dependencies.node(timeline.thread.id, self.last.id, "answer", text, data=data)
        )


def reply_data(reply: ElicitReply) -> dict[str, JsonValue]:
    """Return ``reply`` as it is stored with an answer, and recorded in the call."""
    return cast("dict[str, JsonValue]", reply.model_dump(mode="json", exclude_none=True))


def reply_of(answer: Node) -> ElicitReply:
    """Return the reply that the node ``answer`` holds."""
    given = {name: value for name, value in answer.data.items() if name != "state"}
    return ElicitReply.model_validate(given)


def question_of(node: Node) -> ElicitRequest | UrlRequest:
    """Return what the question ``node`` asks.

    Raises:
        ToolError: the question is closed.
    """
    try:
        return _QUESTION.validate_python(stored_with(node, "request"))
    except ValidationError:
        raise _closed(node) from None


def stored_with(question: Node, name: str) -> JsonValue:
    """Return what is stored under ``name`` with a question.

    Raises:
        ToolError: nothing is, because the question was loaded from a file; it is closed.
    """
    if name not in question.data:
        raise _closed(question)
    return question.data[name]


def _closed(question: Node) -> ToolError:
    return ToolError(
        f"The question {question.id!r} comes from a file and is closed: the call that asked it is"
        " not continued here. Continue with a message; the model can call the tool again."
    )
