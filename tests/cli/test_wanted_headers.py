"""A server that requires a header: the error names the header and the option that sends it."""

import gzip
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from mcp import Client, MCPError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from anabranch import ToolError, tool
from anabranch._asking import Absent
from anabranch._terminal import CommandError, FailedError
from anabranch.agents import RemoteTools
from anabranch.cli._connection import open_session, server_of
from anabranch.cli._options import Era, ReachOptions
from anabranch.cli._tool_summaries import summaries_of
from anabranch.tool import BranchContext
from tests.mcp.harness import asgi, serving

BEARER = 'Bearer error="invalid_token", error_description="Authentication required"'


@tool
async def look(ctx: BranchContext) -> str:
    return "seen"


def refusing(response: Response) -> Starlette:
    async def refuse(_: Request) -> Response:
        return response

    return Starlette(routes=[Route("/mcp", refuse, methods=["GET", "POST", "DELETE"])])


NOT_READ = Response("x" * 100_000, 401)
PADDED = Response("x" * 100, 401, {"Content-Length": "0000000000100"})
PACKED = Response(gzip.compress(b"x" * 1_000), 401, {"Content-Encoding": "gzip"})
UNREAD = "it answers 401 Unauthorized. Give it the header: --header 'Auth"
RPC = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "X-Region is missing"}}
CASES: dict[str, tuple[Response, str]] = {
    "a key": (
        JSONResponse({"error": "missing header X-API-Key"}, 400),
        (
            'it answers 400 Bad Request ({"error":"missing header X-API-Key"}). Give it the header:'
            " --header 'X-API-Key: …', in a program headers=."
        ),
    ),
    "a token": (
        PlainTextResponse("", 401, {"WWW-Authenticate": BEARER}),
        "--header 'Authorization: Bearer …'",
    ),
    "too much said": (NOT_READ, UNREAD),
    "a length that may be any": (PADDED, UNREAD),
    "a packed body, which may be of any length": (PACKED, UNREAD),
    "an error of MCP": (JSONResponse(RPC, 400), "--header 'X-Region: …'"),
    "another problem": (PlainTextResponse("\x1b[2Jno", 403), "403 Forbidden (\ufffd[2Jno)."),
}


@pytest.mark.parametrize("case", CASES)
async def test_the_header_is_named_with_how_to_give_it(case: str) -> None:
    response, words = CASES[case]
    async with asgi(refusing(response)) as url:
        with pytest.raises(FailedError) as called:
            await summaries_of(url)
        with pytest.raises(ToolError) as connected:
            async with RemoteTools(url):
                raise AssertionError
    for error in (called.value, connected.value):
        assert words in str(error)
        assert url in str(error)
        assert len(str(error)) < 500
        assert "\n" not in str(error)


async def test_a_header_that_is_not_accepted_is_named_without_its_value() -> None:
    refused = PlainTextResponse("who?", 401, {"WWW-Authenticate": BEARER})
    async with asgi(refusing(refused)) as url:
        with pytest.raises(FailedError, match="does not accept the header Authorization") as caught:
            await summaries_of(url, ReachOptions(token="a-secret-of-letters"))
    assert "a-secret" not in str(caught.value)


async def test_a_refusal_of_another_eras_request_is_forgotten() -> None:
    """A server of the handshake era may answer 400 to the first request of the modern one."""
    refused: list[str] = []

    def discovers(_: str, named: str) -> bool:
        refused.extend({named} & {"server/discover"})
        return named == "server/discover"

    async with asgi(refusing_some(discovers, "Bad Request: X-Session", 400)) as url:
        [found] = await summaries_of(url)
        assert found.name == "look"
        async with RemoteTools(url) as remote:
            assert [each.name for each in remote.offered_tools(())] == ["look"]
    assert refused


def refusing_some(
    refused: Callable[[str, str], bool], text: str = "forbidden", status: int = 403
) -> Any:
    """An application that refuses requests by their HTTP method and their MCP method."""
    app: Any = serving(look).streamable_http_app()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        named = headers.get(b"mcp-method", b"").decode()
        if scope["type"] == "http" and refused(scope["method"], named):
            await PlainTextResponse(text, status)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guarded


async def ended(url: str, act: Callable[[Client], Awaitable[Any]], era: Era) -> str:
    with pytest.raises(CommandError) as raised:
        await open_session(url, server_of(url), Absent(), act, era=era)
    return str(raised.value)


async def test_an_error_of_mcp_is_not_hidden_by_a_connection_whose_end_is_refused() -> None:
    async def act(client: Client) -> None:
        raise MCPError(-32602, "No, not so.")

    async with asgi(refusing_some(lambda method, _: method == "DELETE")) as url:
        assert await ended(url, act, "handshake") == "No, not so."


async def test_the_error_of_a_tool_is_not_hidden_by_another_requests_refusal() -> None:
    async def act(client: Client) -> None:
        with suppress(MCPError):
            await client.list_prompts()
        raise FailedError("No seat is left on that flight.")

    async with asgi(refusing_some(lambda _, named: named == "prompts/list")) as url:
        assert await ended(url, act, "modern") == "No seat is left on that flight."
