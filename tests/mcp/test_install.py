"""``install`` adds our tools to a server that its user already has."""

from typing import Annotated, Any

import anyio.lowlevel
import mcp_types as types
import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import InvalidSignature, UnexpectedToolError
from pydantic import Field

from anabranch import BranchContext, Limits, tool
from anabranch.mcp import create_server, install
from tests.mcp.asking import ask
from tests.mcp.harness import ERAS, MODERN, Answers, accept, connected, echo, text_of


@tool
async def deep(ctx: BranchContext) -> int:
    """Open nested branches until a limit stops them."""

    async def down(ctx: BranchContext) -> int:
        return await ctx.branch(down)

    return await ctx.branch(down)


def existing() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("existing", log_level="WARNING")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    return server


@pytest.mark.parametrize("era", ERAS)
async def test_tools_are_added_next_to_those_that_are_there(era: str) -> None:
    server = existing()
    install(server, ask)
    async with connected(server, era, Answers(lambda _: accept(ok=True))) as client:
        names = [listed.name for listed in (await client.list_tools()).tools]
        added = await client.call_tool("add", {"a": 1, "b": 2})
        asked = await client.call_tool("ask")
    assert names == ["add", "ask"]
    assert added.structured_content == {"result": 3}
    assert text_of(asked) == "accept"


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="Two tools are named ask"):
        install(existing(), ask, deep, ask)


def test_a_name_that_the_server_has_already_is_refused() -> None:
    """Otherwise the SDK keeps the old tool, with only a warning in its log."""

    @tool(name="add")
    async def other(ctx: BranchContext) -> str:
        return "other"

    server = existing()
    with pytest.raises(ValueError, match="'existing' already has a tool named add"):
        install(server, ask, other)
    with pytest.raises(ValueError, match="already has a tool named ask"):
        install(create_server("existing", [ask]), ask)


async def test_a_server_that_lists_its_tools_lazily_gets_our_tools() -> None:
    class Slow(MCPServer[Any]):
        async def list_tools(self) -> list[types.Tool]:
            await anyio.lowlevel.checkpoint()
            return await super().list_tools()

    server = Slow("slow", log_level="WARNING")
    install(server, ask)
    async with connected(server, MODERN, Answers(lambda _: accept(ok=True))) as client:
        assert text_of(await client.call_tool("ask")) == "accept"


@pytest.mark.parametrize("era", ERAS)
async def test_limits_of_an_installation_enclose_every_call(era: str) -> None:
    server = existing()
    install(server, deep, limits=Limits(max_depth=2))
    async with connected(server, era) as client:
        result = await client.call_tool("deep")
    assert "A branch at depth 3 would exceed max_depth=2" in text_of(result)


@pytest.mark.parametrize("era", ERAS)
async def test_an_ordinary_tool_can_call_ours(era: str) -> None:
    server = existing()
    install(server, ask)

    @server.tool()
    async def wrapped(subject: str, context: Context[Any, Any]) -> Any:
        return await server.call_tool("ask", {"what": subject}, context)

    answers = Answers(lambda _: accept(ok=True), echo)
    async with connected(server, era, answers) as client:
        result = await client.call_tool("wrapped", {"subject": "that"})
    assert text_of(result) == "accept"
    assert [asked.message for asked in answers.asked] == ["Do that?"]


async def test_a_tool_is_not_called_outside_of_a_request() -> None:
    """The SDK would mask the unexpected error that a missing request causes."""
    server = existing()
    install(server, ask)
    with pytest.raises(
        UnexpectedToolError, match=r"^Error executing tool ask \(error [0-9a-f]{8}\)$"
    ):
        await server.call_tool("ask", {})


def test_a_header_that_is_not_valid_is_refused_as_the_sdk_refuses_it() -> None:
    @tool
    async def routed(
        ctx: BranchContext,
        region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "not a token"})],
    ) -> str:
        return region

    with pytest.raises(InvalidSignature, match="'routed' has an invalid x-mcp-header"):
        install(existing(), routed)


async def test_a_server_tells_its_name_and_version() -> None:
    server = create_server("travel", [ask], instructions="Ask me.", version="1.2")
    async with connected(server, "auto", Answers(lambda _: accept(ok=True))) as client:
        assert client.protocol_version == MODERN
        assert client.instructions == "Ask me."
        info = client.server_info
    assert info is not None
    assert (info.name, info.version) == ("travel", "1.2")
