"""Long lists as results: one text, made in C; a text for each of a million values takes half a minute."""

import json
from typing import Any

import pytest
from fastmcp import Client as FastClient
from fastmcp import FastMCP
from mcp import Client
from mcp.types import ImageContent

from anabranch import BranchContext, tool
from anabranch.mcp import SagaClient, as_fastmcp_tool, create_server
from anabranch.mcp._unfinished import MOST_TEXTS, list_as_one
from anabranch.testing import MockClient
from tests.mcp.harness import ERAS, HANDSHAKE


@tool
async def echo(ctx: BranchContext, numbers: list[int]) -> list[int]:
    """Return the numbers."""
    return numbers


@tool
async def echo_all(ctx: BranchContext, rows: list[list[str]]) -> list[list[str]]:
    """Return the rows."""
    return rows


def server() -> Any:
    return create_server("lists", [echo, echo_all])


LONG = MOST_TEXTS + 1
CASES: list[tuple[str, dict[str, Any], int]] = [
    ("echo", {"numbers": [*range(LONG)]}, 1),
    ("echo", {"numbers": [*range(MOST_TEXTS)]}, MOST_TEXTS),
    ("echo_all", {"rows": [["a", "b"]] * LONG}, 1),
    ("echo_all", {"rows": [["a"] * 30] * 40}, 1),
    ("echo_all", {"rows": [["a", "b"]] * 2}, 4),
]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(("name", "arguments", "texts"), CASES)
async def test_a_list_is_a_text_for_each_value_as_the_sdk_has_it_or_one_text_if_it_is_long(
    mode: Any, name: str, arguments: dict[str, Any], texts: int
) -> None:
    (value,) = arguments.values()
    async with Client(server(), mode=mode) as client:
        called = await client.call_tool(name, arguments)
        saga = await SagaClient(client, MockClient()).call_tool(name, arguments)
    assert called.content == saga.content
    assert len(called.content) == texts
    assert called.structured_content == saga.structured_content == {"result": value}


async def test_fastmcp_has_one_text_for_any_list() -> None:
    host = FastMCP("lists")
    host.add_tool(as_fastmcp_tool(echo))
    async with FastClient(host, mode=HANDSHAKE) as client:
        result = await client.call_tool("echo", {"numbers": [1, 2]})
    [block] = result.content
    assert json.loads(getattr(block, "text", "")) == [1, 2]


def test_values_that_are_no_data_stay_unchanged() -> None:
    picture = ImageContent(type="image", data="", mime_type="image/png")
    endless: list[Any] = []
    endless.append(endless)
    for value in ([picture] * LONG, [[picture, 1]] * LONG, endless, "a" * LONG, {"a": 1}, None, []):
        assert list_as_one(value) is value
