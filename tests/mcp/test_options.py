"""The options of a server: one frozen object, or keyword arguments with the same names."""

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any, get_type_hints

import pytest
from fastmcp import FastMCP
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.types import METHOD_NOT_FOUND

from anabranch import BranchContext, Limits, tool
from anabranch.mcp import ServerKeywords, ServerOptions, install, install_fastmcp
from tests.mcp.harness import MODERN, connected, text_of
from tests.mcp.hosts import created, installed, on_fastmcp, single_on_fastmcp
from tests.sagas.harness import call_saga


@tool
async def deep(ctx: BranchContext) -> int:
    """Open nested branches until a limit stops them."""

    async def down(ctx: BranchContext) -> int:
        return await ctx.branch(down)

    return await ctx.branch(down)


OPTIONS = ServerOptions(limits=Limits(max_depth=2))


@pytest.mark.parametrize("make", [created, installed, on_fastmcp, single_on_fastmcp])
async def test_every_way_to_serve_takes_options_whose_fields_keywords_replace(make: Any) -> None:
    for server, depth in (
        (make(deep, options=OPTIONS), 2),
        (make(deep, options=OPTIONS, limits=Limits(max_depth=1)), 1),
    ):
        async with connected(server, MODERN) as client:
            result = await client.call_tool("deep")
        assert f"would exceed max_depth={depth}" in text_of(result)


def test_the_keywords_are_the_fields() -> None:
    assert get_type_hints(ServerKeywords) == get_type_hints(ServerOptions)
    assert {field.name for field in fields(ServerOptions)} == set(get_type_hints(ServerKeywords))


def test_options_are_frozen_and_show_no_secrets() -> None:
    options = replace(OPTIONS, keys=["a secret of thirty-two bytes, or more"], store="memory:")
    with pytest.raises(FrozenInstanceError):
        options.ttl = 1  # type: ignore[misc]
    assert "secret" not in repr(options)


def test_a_keyword_that_is_not_an_option_is_refused() -> None:
    with pytest.raises(TypeError, match="stor"):
        created(deep, stor="memory:")


@tool
async def nothing(ctx: BranchContext) -> str:
    return ""


@pytest.mark.parametrize("make", [created, on_fastmcp])
async def test_a_server_without_sagas_does_not_know_their_methods(make: Any) -> None:
    server = make(nothing, sagas=False)
    async with connected(server, MODERN) as client:
        with pytest.raises(MCPError) as refused:
            await call_saga(client, "nothing", {})
        assert text_of(await client.call_tool("nothing", {})) == ""
    assert refused.value.code == METHOD_NOT_FOUND


@pytest.mark.parametrize(
    ("add", "server", "use"),
    [
        (install, FastMCP("s"), r"use anabranch\.mcp\.install_fastmcp\("),
        (install_fastmcp, MCPServer("s"), r"use anabranch\.mcp\.install\("),
        (install, Server("s"), r"use anabranch\.mcp\.create_server\("),
        (install_fastmcp, Server("s"), r"use anabranch\.mcp\.create_server\("),
        (install, "s", r"Give an MCPServer to install\(\)"),
    ],
)
def test_a_server_of_another_kind_is_refused_with_the_function_to_use(
    add: Any, server: Any, use: str
) -> None:
    with pytest.raises(TypeError, match=use):
        add(server, deep)
