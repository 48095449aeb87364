"""Calls of clients that show no questions: results carry a handle, and ``answer_questions`` takes
answers.
"""

import re
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp import Client

from tests.mcp.harness import text_of

HANDLE = re.compile(r"call='([^']+)'")


def given(question: str, action: str = "accept", **content: Any) -> dict[str, Any]:
    return {"question": question, "action": action, **({"content": content} if content else {})}


def handle_in(result: types.CallToolResult) -> str:
    found = HANDLE.search(text_of(result))
    assert found is not None, text_of(result)
    return found[1]


async def answered(client: Client, handle: str, *answers: Mapping[str, Any]) -> Any:
    arguments = {"call": handle, "answers": [*answers]}
    return await client.call_tool("answer_questions", arguments)
