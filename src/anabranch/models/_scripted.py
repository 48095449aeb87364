"""A model that says what a script tells it to: for tests, demos and offline use.

Owns the script's format. It is deterministic: the same requests in the same order get the same
replies, with the same tool call ids. It never looks at ``max_tokens`` and calls no network.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from anabranch._asking.tokens import estimate_tokens
from anabranch.messages import (
    Block,
    Message,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    Usage,
    text_of,
)
from anabranch.models._model_errors import ModelError
from anabranch.models._streaming import ReplyInPieces, SampleStream

__all__ = ["Reply", "ReplyToolCall", "ScriptedModel"]

SHOWN = 80
_WORD = re.compile(r"\s*\S+\s*\Z|\s*\S+|\s+")


class _Entry(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)


class ReplyToolCall(_Entry):
    """A tool that a reply wants called."""

    name: str = Field(min_length=1)
    arguments: dict[str, JsonValue] = {}


class Reply(_Entry):
    """One reply of a script.

    Attributes:
        text: what the model says.
        tool_calls: the tools that it wants called.
        when: answer the first request whose last message contains this; without it the reply
            waits for its turn.
        repeat: answer all further such requests too, instead of one.
    """

    text: str | None = None
    tool_calls: tuple[ReplyToolCall, ...] = ()
    when: str | None = Field(default=None, min_length=1)
    repeat: bool = False


_SCRIPT: TypeAdapter[tuple[Reply, ...]] = TypeAdapter(tuple[Reply, ...])


class ScriptedModel:
    """A ``StreamingSampler`` that takes its replies from a script, and streams them word by word.

    Args:
        replies: the script; entries may be :class:`Reply` or their JSON.
        name: what it calls itself, in replies and errors.

    Raises:
        ModelError: an entry does not fit; the message names the entry and the field.
    """

    def __init__(self, replies: Iterable[Reply | dict[str, Any]], name: str = "script") -> None:
        self.name = name
        self._left = list(_checked(list(replies), name))
        self._asked = 0

    @classmethod
    def from_file(cls, path: Path) -> ScriptedModel:
        """Return the model of the script in ``path``, a JSON list.

        Raises:
            ModelError: the file cannot be read, or holds something else.
        """
        try:
            entries: object = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise ModelError(
                f"Cannot read the model script {path}: {error.strerror}. Check the path."
            ) from error
        except ValueError as error:
            raise ModelError(f"The model script {path} is not JSON: {error}.") from error
        except RecursionError as error:
            raise ModelError(f"The model script {path} is nested too deeply.") from error
        if not isinstance(entries, list):
            raise ModelError(f"The model script {path} must be a JSON list of replies.")
        return cls(cast("list[dict[str, Any]]", entries), f"script:{path}")

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Give the next fitting reply. Usage is an estimate.

        Raises:
            ModelError: no reply is left for this request.
        """
        self._asked += 1
        reply = self._take(_heard(request.messages[-1]) if request.messages else "")
        content: list[Block] = [TextBlock(text=reply.text)] if reply.text is not None else []
        ids = _fresh_ids(request)
        content += [
            ToolUseBlock(id=next(ids), name=call.name, input=call.arguments)
            for call in reply.tool_calls
        ]
        return SampleReply(
            content=tuple(content),
            model=self.name,
            stop_reason="toolUse" if reply.tool_calls else "endTurn",
            usage=Usage(
                input_tokens=_estimate(request.messages)
                + estimate_tokens(request.system_prompt or "")
                + sum(estimate_tokens(tool.model_dump_json()) for tool in request.tools or ()),
                output_tokens=sum(map(_block_tokens, content)),
            ),
        )

    @asynccontextmanager
    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampleStream]:
        """Give the next fitting reply, a word at a time. A reply that is left early is used up.

        Raises:
            ModelError: no reply is left for this request.
        """
        reply = await self.sample(request)
        yield ReplyInPieces(reply, _WORD.findall(reply.text))

    def _take(self, heard: str) -> Reply:
        """Remove the reply from the script, unless it repeats.

        One that waits for what was said goes before those that wait for their turn.
        """
        fitting = (reply for reply in self._left if reply.when is not None and reply.when in heard)
        in_turn = (reply for reply in self._left if reply.when is None)
        reply = next(fitting, None) or next(in_turn, None)
        if reply is None:
            shown = heard if len(heard) <= SHOWN else heard[:SHOWN] + "…"
            raise ModelError(
                f"{self.name} has no reply left for request {self._asked}, whose last message is"
                f" {shown!r}. Add a reply to the script."
            )
        if not reply.repeat:
            # By identity: the same words may stand in a script twice.
            self._left = [left for left in self._left if left is not reply]
        return reply


def _checked(replies: list[Any], name: str) -> tuple[Reply, ...]:
    try:
        checked = _SCRIPT.validate_python(replies)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        number, *field = problem["loc"]
        where = f", field {'.'.join(map(str, field))!r}" if field else ""
        raise ModelError(f"{name}: reply {int(number) + 1}{where}: {problem['msg']}.") from error
    for number, reply in enumerate(checked, 1):
        if reply.text is None and not reply.tool_calls:
            raise ModelError(f"{name}: reply {number} needs 'text' or 'tool_calls'.")
    return checked


def _heard(message: Message) -> str:
    """All text of a message, with what tools returned."""
    blocks: list[Block] = []
    for block in message.content:
        blocks.extend(block.content if isinstance(block, ToolResultBlock) else (block,))
    return text_of(blocks)


def _fresh_ids(request: SampleRequest) -> Iterator[str]:
    """Yield ``call_1`` and so on, leaving out those that the conversation has already."""
    used = {
        block.id
        for message in request.messages
        for block in message.content
        if isinstance(block, ToolUseBlock)
    }
    number = 0
    while True:
        number += 1
        if (fresh := f"call_{number}") not in used:
            yield fresh


def _estimate(messages: Iterable[Message]) -> int:
    return sum(_block_tokens(block) for message in messages for block in message.content)


def _block_tokens(block: Block) -> int:
    text = block.text if isinstance(block, TextBlock) else block.model_dump_json()
    return estimate_tokens(text)
