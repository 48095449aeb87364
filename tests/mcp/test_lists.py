"""Lists as results: one JSON text, which each client can parse."""

import json
from typing import Any

import pytest
from fastmcp import Client as FastClient
from fastmcp import FastMCP
from mcp import Client
from mcp.types import ImageContent

from anabranch import BranchContext, tool
from anabranch.mcp import SagaClient, as_fastmcp_tool, create_server
from anabranch.mcp._result_values import list_as_one
from anabranch.testing import MockClient
from tests.mcp.harness import ERAS, HANDSHAKE


@tool
async def echo(ctx: BranchContext, numbers: list[int]) -> list[int]:
    return numbers


@tool
async def echo_all(ctx: BranchContext, rows: list[list[str]]) -> list[list[str]]:
    return rows


def server() -> Any:
    return create_server("lists", [echo, echo_all])


CASES: list[tuple[str, dict[str, Any]]] = [
    ("echo", {"numbers": []}),
    ("echo", {"numbers": [1, 2]}),
    ("echo_all", {"rows": [["a", "b"]] * 1_001}),
]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(("name", "arguments"), CASES)
async def test_a_list_is_one_json_text(mode: Any, name: str, arguments: dict[str, Any]) -> None:
    (value,) = arguments.values()
    async with Client(server(), mode=mode) as client:
        called = await client.call_tool(name, arguments)
        saga = await SagaClient(client, MockClient()).call_tool(name, arguments)
    assert called.content == saga.content
    [block] = called.content
    assert json.loads(getattr(block, "text", "")) == value
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
    for value in ([picture], [[1, picture]], endless, "a", {"a": 1}, None):
        assert list_as_one(value) is value
