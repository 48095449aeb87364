"""The result of an MCP server's tool, as a model reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types

from anabranch._schemas import UnusableSchemaError, misfit
from anabranch.agents._agent_tools import Outcome
from anabranch.agents._result_blocks import result_blocks
from anabranch.mcp._odd_answers import has_structured_content
from anabranch.messages import ResultBlock, TextBlock, text_of


def outcome_of(result: types.CallToolResult, schema: Mapping[str, Any] | None) -> Outcome:
    """Return the outcome of a call.

    A server repeats structured content as text, for models; it is used where a server does not.
    If that content is missing or incomplete, the model reads the result, and a line that says so.

    Args:
        result: of the call.
        schema: output schema of the tool, if it has one.
    """
    blocks = tuple(_block(block) for block in result.content)
    blocks = blocks or result_blocks(result.structured_content)
    outcome = Outcome(text_of(blocks), bool(result.is_error), blocks)
    if schema is None or result.is_error or (lack := _lack(result, schema)) is None:
        return outcome
    return outcome.with_line(f"({lack})")


def _lack(result: types.CallToolResult, schema: Mapping[str, Any]) -> str | None:
    """Return what a result lacks of the structured content that its tool promises."""
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
