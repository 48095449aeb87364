"""Converts the arguments and the result of another server's tool for its schema and the model."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeAlias, cast

import mcp_types as types

from anabranch._schemas import UnusableSchemaError, misfit, misfits
from anabranch.mcp import has_structured_content
from anabranch.messages import AudioBlock, DocumentBlock, FileBlock, ResultBlock, Shape, TextBlock
from anabranch.tree import file_line, result_blocks

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
        blocks = tuple(_line_if_large(limits, block) for block in self.blocks)
        sizes = [_size(block) for block in blocks]
        if sum(sizes) <= limits.max_result and len(sizes) <= BLOCKS:
            return RemoteResult(blocks=blocks, is_error=self.is_error)
        text = (
            f"The result of {tool!r} is too large, and is left out: it has {sum(sizes):,} of at most"
            f" {limits.max_result:,} characters, and {len(sizes):,} of at most {BLOCKS:,} parts. Call"
            " it so that it returns less."
        )
        return RemoteResult(blocks=(TextBlock(text=text),), is_error=True)


def _line_if_large(limits: RemoteLimits, block: ResultBlock) -> ResultBlock:
    if not isinstance(block, AudioBlock | DocumentBlock) or _size(block) <= limits.max_result:
        return block
    name = block.name if isinstance(block, DocumentBlock) else ""
    size = len(block.data) * 3 // 4
    return TextBlock(text=file_line(FileBlock(mime_type=block.mime_type, size=size, name=name)))


def _size(block: ResultBlock) -> int:
    if isinstance(block, FileBlock):
        return block.size
    return len(block.text if isinstance(block, TextBlock) else block.data)


Place: TypeAlias = tuple[str | int, ...]

MOST_NULLS: Final = 100
"""Maximum nulls of one call that may be left out: each costs a comparison with the schema."""


def without_foreign_nulls(
    schema: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return ``arguments`` without nulls, which models write for optional properties they leave out.

    The null of a required property stays, so that the server names the missing value.
    """
    meant = copy.deepcopy(dict(arguments))
    nulls = list(islice(_nulls(meant, ()), MOST_NULLS))
    if not nulls:
        return meant
    wrong = len(misfits(schema, meant))
    for place in nulls:
        if not wrong:
            break
        trial = copy.deepcopy(meant)
        _remove(trial, place)
        if (left := len(misfits(schema, trial))) < wrong:
            meant, wrong = trial, left
    return meant


def _nulls(value: object, place: Place) -> Iterator[Place]:
    if isinstance(value, dict):
        for name, part in cast("dict[str, object]", value).items():
            if part is None:
                yield (*place, name)
            else:
                yield from _nulls(part, (*place, name))
    elif isinstance(value, list):
        for number, part in enumerate(cast("list[object]", value)):
            yield from _nulls(part, (*place, number))


def _remove(arguments: Any, place: Place) -> None:  # noqa: ANN401 - JSON
    holder = arguments
    for step in place[:-1]:
        holder = holder[step]
    del holder[place[-1]]


def result_of(result: types.CallToolResult, schema: Mapping[str, Any] | None) -> RemoteResult:
    """Return a server's result as the model reads it, with a line about missing structured content.

    Servers repeat structured content as text; without the text, the model reads that content.
    """
    blocks = tuple(_block(block) for block in result.content)
    blocks = blocks or result_blocks(result.structured_content)
    if schema is not None and not result.is_error and (lack := _lack(result, schema)) is not None:
        blocks = (*blocks, TextBlock(text=f"\n({lack})"))
    return RemoteResult(blocks=blocks, is_error=bool(result.is_error))


def _lack(result: types.CallToolResult, schema: Mapping[str, Any]) -> str | None:
    if not has_structured_content(result):
        return "The tool promises structured content, but its server has sent none."
    try:
        problem = misfit(schema, result.structured_content)
    except UnusableSchemaError:
        return None  # nothing can be compared with the schema
    return problem and f"The structured content does not fit the tool's output schema: {problem}."


def _block(block: types.ContentBlock) -> ResultBlock:
    match block:
        case types.TextContent():
            return TextBlock(text=block.text)
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return TextBlock(text=text)
        case types.ResourceLink():
            said = "".join(f"\n{each}" for each in (block.title, block.description) if each)
            return TextBlock(text=f"{block.name}: {block.uri}{said}")
        case _:
            return result_blocks(block)[0]
