"""A model that takes its replies from a script, for tests, demos and offline use."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from anabranch._asking import describe_entry, estimate_tokens
from anabranch._text import encodable, read_json_list
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
from anabranch.models._protocol import ModelError, ReplyInPieces, SampleStream, ended_at_stop

SHOWN = 80
_WORD = re.compile(r"\s*\S+\s*\Z|\s*\S+|\s+")


class _Entry(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True)


class ReplyToolCall(_Entry):
    """A tool call in a reply of a script."""

    name: str = Field(min_length=1)
    arguments: dict[str, JsonValue] = {}


class Reply(_Entry):
    """An entry of a model's script: a reply, and the request that gets it.

    Attributes:
        text: the text of the reply.
        tool_calls: the tool calls of the reply.
        when: use the reply for the first request whose last message contains this text; replies
            without ``when`` are used in order.
        repeat: whether to use the reply for every such request, rather than only the first.
    """

    text: str | None = None
    tool_calls: tuple[ReplyToolCall, ...] = ()
    when: str | None = Field(default=None, min_length=1)
    repeat: bool = False


_SCRIPT: TypeAdapter[tuple[Reply, ...]] = TypeAdapter(tuple[Reply, ...])


class ScriptedModel:
    """A model that replies from a script, without a provider; streams word by word.

    Args:
        replies: the script: replies, or their JSON.
        name: the model's name in replies and errors.

    Raises:
        ModelError: if an entry is not valid; the message names the entry and the field.
    """

    def __init__(self, replies: Iterable[Reply | dict[str, Any]], name: str = "script") -> None:
        self.name = name
        self._left = list(_checked(list(replies), name))
        self._asked = 0

    @classmethod
    def from_file(cls, path: Path) -> ScriptedModel:
        """Return a model that replies from the file ``path``, a JSON list of replies.

        Raises:
            ModelError: if the file cannot be read, or is not a script.
        """
        return cls(read_json_list(path, "model script", ModelError), f"script:{path}")

    async def sample(self, request: SampleRequest) -> SampleReply:
        """Return the next matching reply, with an estimate of its usage.

        Raises:
            ModelError: if no reply is left for this request.
        """
        self._asked += 1
        reply = self._take(_text_with_results(request.messages[-1]) if request.messages else "")
        content: list[Block] = [TextBlock(text=reply.text)] if reply.text is not None else []
        ids = _fresh_ids(request)
        content += [
            ToolUseBlock(id=next(ids), name=call.name, input=call.arguments)
            for call in reply.tool_calls
        ]
        stop_reason = "toolUse" if reply.tool_calls else "endTurn"
        whole = SampleReply(content=tuple(content), model=self.name, stop_reason=stop_reason)
        ended = ended_at_stop(whole, request)
        usage = Usage(
            input_tokens=sum(
                _block_tokens(block) for message in request.messages for block in message.content
            )
            + estimate_tokens(request.system_prompt or "")
            + sum(
                estimate_tokens(encodable(tool).model_dump_json()) for tool in request.tools or ()
            ),
            output_tokens=sum(map(_block_tokens, ended.content)),
        )
        return ended.model_copy(update={"usage": usage})

    @asynccontextmanager
    async def stream(self, request: SampleRequest) -> AsyncGenerator[SampleStream]:
        """Stream the next matching reply, a word at a time; an early exit also uses it up.

        Raises:
            ModelError: if no reply is left for this request.
        """
        reply = await self.sample(request)
        yield ReplyInPieces(reply, _WORD.findall(reply.text))

    def _take(self, last: str) -> Reply:
        """Return the next reply to the message ``last``; a matching ``when`` comes first."""
        matching = (reply for reply in self._left if reply.when is not None and reply.when in last)
        in_order = (reply for reply in self._left if reply.when is None)
        reply = next(matching, None) or next(in_order, None)
        if reply is None:
            shown = last if len(last) <= SHOWN else last[:SHOWN] + "…"
            raise ModelError(
                f"{self.name} has no reply left for request {self._asked}, whose last message is"
                f" {shown!r}. Add a reply to the script."
            )
        if not reply.repeat:
            # Compare identities: a script may have two equal replies.
            self._left = [left for left in self._left if left is not reply]
        return reply


def _checked(replies: list[Any], name: str) -> tuple[Reply, ...]:
    try:
        checked = _SCRIPT.validate_python(replies)
    except ValidationError as error:
        raise ModelError(f"{name}: {describe_entry(error, 'reply')}") from error
    for number, reply in enumerate(checked, 1):
        if reply.text is None and not reply.tool_calls:
            raise ModelError(f"{name}: reply {number} needs 'text' or 'tool_calls'.")
    return checked


def _text_with_results(message: Message) -> str:
    blocks: list[Block] = []
    for block in message.content:
        blocks.extend(block.content if isinstance(block, ToolResultBlock) else (block,))
    return text_of(blocks)


def _fresh_ids(request: SampleRequest) -> Iterator[str]:
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


def _block_tokens(block: Block) -> int:
    text = block.text if isinstance(block, TextBlock) else encodable(block).model_dump_json()
    return estimate_tokens(text)
