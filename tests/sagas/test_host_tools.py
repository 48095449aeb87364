"""``tools/callSaga`` for the host's own tools: the SDK's, FastMCP's, mounted and proxied tools.

The method reaches every tool that ``tools/list`` shows. A tool of another kind runs in one round.
"""

from typing import Annotated, Any

import fastmcp
import mcp_types as types
import pytest
from fastmcp import Context as FastMcpContext
from fastmcp import FastMCP
from fastmcp.server import create_proxy
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve

from anabranch.mcp import as_fastmcp_tool, fastmcp_sagas, install, install_fastmcp
from tests.mcp.asking import Ok, ask
from tests.mcp.harness import ERAS, HANDSHAKE, KEY, MODERN, Answers, accept, connected
from tests.sagas.harness import accepted, call_saga, raw, resume_saga, text_in

ERA = pytest.mark.parametrize("era", ERAS)


async def whether() -> Elicit[Ok]:
    return Elicit("Sure?", Ok)


def theirs() -> MCPServer[Any]:
    """Return a server with its own tools, our tools, and the saga methods."""
    server: MCPServer[Any] = MCPServer("theirs", log_level="CRITICAL")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def file() -> str:
        """Return the name of a file that is not UTF-8."""
        return "caf\udce9"

    @server.tool()
    async def asks(context: Context[Any, Any]) -> str:
        """Ask by the SDK's own means."""
        return (await context.elicit("Sure?", Ok)).action

    @server.tool()
    async def resolves(answer: Annotated[Ok, Resolve(whether)]) -> str:
        """Suspend by the SDK's own means."""
        return str(answer.ok)

    @server.tool()
    async def shows(context: Context[Any, Any]) -> list[Any]:
        """Return the request state and the answers that a resumed request carries."""
        return [context.request_state, context.input_responses]

    install(server, ask, keys=[KEY])
    return server


def fast() -> FastMCP[Any]:
    """Return a FastMCP server with its own tools and our tools."""
    server: FastMCP[Any] = FastMCP("fast")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def asks(context: FastMcpContext) -> str:
        return (await context.elicit("Sure?", Ok)).action

    server.add_tool(as_fastmcp_tool(ask))
    return server


def alone() -> Any:
    server = fast()
    server.add_extension(fastmcp_sagas(keys=[KEY]))
    return server._mcp_server


def under(name: str) -> Any:
    """Return a server that mounts another server as ``name``."""
    outer: FastMCP[Any] = FastMCP("outer")
    outer.mount(fast(), namespace=name)
    outer.add_extension(fastmcp_sagas(keys=[KEY]))
    return outer._mcp_server


def proxied() -> Any:
    server = create_proxy(fastmcp.Client(fast(), mode=HANDSHAKE), name="proxy")
    server.add_extension(fastmcp_sagas(keys=[KEY]))
    return server._mcp_server


HOSTS: dict[str, tuple[Any, str]] = {
    "MCPServer": (theirs, ""),
    "FastMCP": (alone, ""),
    "mounted": (lambda: under(""), ""),
    "namespaced": (lambda: under("in"), "in_"),
    "proxied": (proxied, ""),
}
OURS = [host for host in HOSTS if host != "proxied"]


@ERA
@pytest.mark.parametrize("host", HOSTS)
async def test_a_tool_of_the_host_is_a_saga_of_one_round(host: str, era: str) -> None:
    make, prefix = HOSTS[host]
    arguments = {"a": 1, "b": 2}
    async with connected(make(), era, Answers()) as client:
        params = {"name": f"{prefix}add", "arguments": arguments}
        called = await raw(client, "tools/call", params)
        saga = await call_saga(client, f"{prefix}add", arguments)
        wrong = await call_saga(client, f"{prefix}add", {"a": 1})
        with pytest.raises(MCPError, match="name: there is no tool 'nowhere'"):
            await call_saga(client, "nowhere", {})
    assert text_in(saga) == "3"
    assert saga == {key: value for key, value in called.items() if key != "isError"}
    assert wrong["isError"] is True


@ERA
@pytest.mark.parametrize("host", OURS)
async def test_our_tools_ask_by_steps_even_when_mounted(host: str, era: str) -> None:
    make, prefix = HOSTS[host]
    async with connected(make(), era, Answers()) as client:
        first = await call_saga(client, f"{prefix}ask", {"what": "that"})
        (step,) = first["steps"]
        last = await resume_saga(client, first["sagaToken"], accepted("ask/elicit.1", ok=True))
    assert (step["stepId"], step["params"]["message"]) == ("ask/elicit.1", "Do that?")
    assert text_in(last) == "accept"


@pytest.mark.parametrize("host", OURS)
async def test_a_tool_that_asks_through_the_host_asks_as_in_tools_call(host: str) -> None:
    """In the handshake era the tool asks by a request; on 2026-07-28 the host refuses."""
    make, prefix = HOSTS[host]
    answers = Answers(lambda _: accept(ok=True))
    async with connected(make(), HANDSHAKE, answers) as client:
        assert text_in(await call_saga(client, f"{prefix}asks", {})) == "accept"
    assert len(answers.asked) == 1
    async with connected(make(), MODERN, answers) as client:
        replies = [
            await said(client, method, {"name": f"{prefix}asks", "arguments": {}})
            for method in ("tools/call", "tools/callSaga")
        ]
    assert replies[0] == replies[1]
    assert "no back-channel" in replies[0] or "unavailable on 2026-07-28" in replies[0]


async def said(client: Any, method: str, params: dict[str, Any]) -> str:
    try:
        return text_in(await raw(client, method, params))
    except MCPError as error:
        return error.error.message


async def test_a_tool_that_suspends_through_the_host_is_refused_with_a_remedy() -> None:
    async with connected(theirs(), MODERN, Answers(lambda _: accept(ok=True))) as client:
        with pytest.raises(MCPError) as refused:
            await call_saga(client, "resolves", {})
    assert refused.value.error == types.ErrorData(
        code=-32602,
        message="name: the host's tool 'resolves' asks in a way that only tools/call of 2026-07-28"
        " carries; use that method",
        data={"field": "name"},
    )


@ERA
async def test_no_state_that_a_client_made_reaches_a_tool(era: str) -> None:
    """No server has sealed the state, so no tool may read it."""
    forged = {
        "requestState": "I am the server's",
        "inputResponses": {"a": {"action": "accept", "content": {"ok": True}}},
    }
    async with connected(theirs(), era, Answers()) as client:
        shown = await raw(client, "tools/callSaga", {"name": "shows", **forged})
    assert shown["structuredContent"] == {"result": [None, None]}


@pytest.mark.parametrize("host", ["mounted", "proxied"])
async def test_no_state_that_a_client_made_reaches_a_mounted_tool(host: str) -> None:
    make, _ = HOSTS[host]
    async with connected(make(), MODERN, Answers(lambda _: accept(ok=True))) as client:
        params = {"name": "add", "arguments": {"a": 1, "b": 2}, "requestState": "forged"}
        assert text_in(await raw(client, "tools/callSaga", params)) == "3"


@ERA
async def test_a_text_that_is_not_utf_8_is_escaped(era: str) -> None:
    async with connected(theirs(), era, Answers()) as client:
        assert text_in(await call_saga(client, "file", {})) == "caf\\udce9"


@ERA
async def test_a_tool_that_was_removed_is_not_called(era: str) -> None:
    server = theirs()
    async with connected(server, era, Answers()) as client:
        first = await call_saga(client, "ask", {})
        server.remove_tool("ask")
        with pytest.raises(MCPError, match="there is no tool 'ask'"):
            await call_saga(client, "ask", {})
        with pytest.raises(MCPError, match="Invalid or expired sagaToken"):
            await resume_saga(client, first["sagaToken"], accepted("ask/elicit.1", ok=True))


async def test_fastmcp_lists_no_saga_extension_without_sagas() -> None:
    for sagas in (True, False):
        server: FastMCP[Any] = FastMCP("fast")
        install_fastmcp(server, ask, store="memory:", sagas=sagas)
        inside = server._mcp_server
        async with connected(inside, "auto", Answers()) as client:
            listed = client.server_capabilities.extensions or {}
            assert ("io.github.anabranch/sagas" in listed) is sagas
