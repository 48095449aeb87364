"""The limits of one call of another server's tool: for its result, and for its questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from anabranch._asking import Capabilities, describe
from anabranch._schemas import Form
from anabranch.agents._tool_questions import Question
from anabranch.errors import ToolError
from anabranch.messages import (
    AudioBlock,
    DocumentBlock,
    FileBlock,
    ResultBlock,
    Shape,
    TextBlock,
    UrlRequest,
)
from anabranch.tree import file_line

BLOCKS: Final = 1_000
"""Maximum texts and images of a result: each is an object of the stored node."""


@dataclass(frozen=True, slots=True)
class RemoteLimits:
    """Limits on one call of a remote server's tool.

    A result over the limit is refused rather than shortened: the model reads the refusal, and may
    ask for less.

    Attributes:
        max_result: characters of a result; an image counts as Base64 text.
        max_question: characters of questions that the server asks together, with the server's
            state.
        max_questions: questions that wait for the user at the same time.
        max_samples: requests to the agent's model.
        max_notices: log messages and progress messages; further messages are dropped.
    """

    max_result: int = 8 * 1024 * 1024
    max_question: int = 1024 * 1024
    max_questions: int = 100
    max_samples: int = 100
    max_notices: int = 1_000


class RemoteResult(Shape):
    blocks: tuple[ResultBlock, ...]
    is_error: bool = False

    def within(self, limits: RemoteLimits, tool: str) -> RemoteResult:
        """Return this result, with names for large files; if it is still too large, return an error."""
        blocks = tuple(_named(limits, block) for block in self.blocks)
        sizes = [_size(block) for block in blocks]
        if sum(sizes) <= limits.max_result and len(sizes) <= BLOCKS:
            return RemoteResult(blocks=blocks, is_error=self.is_error)
        text = (
            f"The result of {tool!r} is too large, and is left out: it has {sum(sizes):,} of at most"
            f" {limits.max_result:,} characters, and {len(sizes):,} of at most {BLOCKS:,} parts. Call"
            " it so that it returns less."
        )
        return RemoteResult(blocks=(TextBlock(text=text),), is_error=True)


def _named(limits: RemoteLimits, block: ResultBlock) -> ResultBlock:
    if not isinstance(block, AudioBlock | DocumentBlock) or _size(block) <= limits.max_result:
        return block
    name = block.name if isinstance(block, DocumentBlock) else ""
    size = len(block.data) * 3 // 4
    return TextBlock(text=file_line(FileBlock(mime_type=block.mime_type, size=size, name=name)))


def check_question(limits: RemoteLimits, tool: str, size: int, number: int) -> None:
    if size > limits.max_question or number > limits.max_questions:
        raise ToolError(
            f"The server of {tool!r} asks too much together: {number:,} of at most"
            f" {limits.max_questions:,} questions, with {size:,} of at most {limits.max_question:,}"
            " characters."
        )


def _size(block: ResultBlock) -> int:
    if isinstance(block, FileBlock):
        return block.size
    return len(block.text if isinstance(block, TextBlock) else block.data)


def shown(question: Question, able: Capabilities) -> Question | None:
    """Return ``question`` for users: its form without patterns, which may take for ever to match."""
    if isinstance(question, UrlRequest):
        return question if able.elicitation_url else None
    if not able.elicitation:
        return None
    try:
        form = Form.model_validate(question.requested_schema)
    except ValidationError as error:
        why = describe(error)
        raise ToolError(f"The server asks with a form that cannot be shown: {why}.") from None
    fields = form.model_dump(
        mode="json",
        by_alias=True,
        exclude_unset=True,
        include={"properties"},
        exclude={"properties": {"__all__": {"pattern"}}},
    )
    schema = {"type": "object", **fields, "required": sorted(form.required)}
    return question.model_copy(update={"requested_schema": schema})
