"""The result of an MCP server's tool, as a model reads it."""

from __future__ import annotations

import mcp_types as types

from anabranch.agents._agent_tools import Outcome
from anabranch.agents._result_blocks import result_blocks
from anabranch.messages import ResultBlock, TextBlock, text_of

__all__ = ["outcome_of"]


def outcome_of(result: types.CallToolResult) -> Outcome:
    """Return the outcome of a call.

    A server repeats structured content as text, for models; it is used where a server does not.
    """
    blocks = tuple(_block(block) for block in result.content)
    blocks = blocks or result_blocks(result.structured_content)
    return Outcome(text_of(blocks), bool(result.is_error), blocks)


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
