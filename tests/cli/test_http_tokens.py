"""``--token``: requests over HTTP need a token, and each token has its own calls."""

from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from fastmcp import FastMCP
from mcp import Client
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl, BaseModel

from anabranch import BranchContext, tool
from anabranch._terminal import UsageError
from anabranch.cli import main
from anabranch.cli._connection import server_of
from anabranch.cli._options import ReachOptions, headers_of, read_tokens
from anabranch.mcp import ServerOptions, as_fastmcp_tool, create_server, install, install_fastmcp
from anabranch.stores import open_store
from tests.cli.http_server import guarded, serving

ALICE, BOB = "a" * 32, "b" * 32
KEY = "a secret of at least thirty-two bytes"


class Ok(BaseModel):
    ok: bool


@tool
async def ask(ctx: BranchContext) -> str:
    return (await ctx.elicit(Ok, "Go on?")).action


async def accept(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"ok": True})


def client_of(address: tuple[str, int], token: str, mode: str, answer: Any = accept) -> Client:
    target = f"http://{address[0]}:{address[1]}/mcp"
    server = server_of(target, reach=ReachOptions(token=token))
    return Client(server, mode=mode, elicitation_callback=answer)


@pytest.mark.parametrize("sent", [None, "Bearer wrong", f"Bearer {ALICE[1:]}", f"Basic {ALICE}"])
async def test_without_the_token_a_request_gets_401_as_the_sdk_says_it(sent: str | None) -> None:
    server: MCPServer[Any] = MCPServer("s", log_level="ERROR")
    app = guarded(server, ALICE, BOB)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        headers = {} if sent is None else {"authorization": sent}
        reply = await client.post("/mcp", json={}, headers=headers)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"].startswith('Bearer error="invalid_token"')


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_stored_calls_are_bound_to_the_token(mode: str) -> None:
    store = open_store("memory:")
    server = create_server("s", [ask], keys=[KEY], store=store)
    app = guarded(server, ALICE, BOB)
    principals: list[str] = []

    async def look(context: Any, params: Any) -> types.ElicitResult:
        principals.extend(record.principal for record in await store.expired(float("inf"), 10))
        return await accept(context, params)

    async with serving(app) as address:
        for token in (ALICE, BOB, ALICE):
            async with client_of(address, token, mode, look) as client:
                await client.call_tool("ask", {})
    await store.close()
    first, second, third = principals
    assert first == third != second
    assert "" not in principals


async def test_a_state_is_bound_to_the_token() -> None:
    server = create_server("s", [ask], keys=[KEY])
    app = guarded(server, ALICE, BOB)
    async with serving(app) as address:
        async with client_of(address, ALICE, "2026-07-28") as client:
            asked = await client.session.call_tool("ask", {}, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        given: dict[str, Any] = {"ask/elicit.1": await accept(None, None)}
        async with client_of(address, BOB, "2026-07-28") as client:
            with pytest.raises(Exception, match="Invalid or expired requestState"):
                await client.session.call_tool(
                    "ask", {}, input_responses=given, request_state=asked.request_state
                )
        async with client_of(address, ALICE, "2026-07-28") as client:
            done = await client.session.call_tool(
                "ask", {}, input_responses=given, request_state=asked.request_state
            )
    assert isinstance(done, types.CallToolResult)
    assert done.structured_content == {"result": "accept"}


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="c", scopes=[]) if token == BOB else None


AUTH = AuthSettings(issuer_url=AnyHttpUrl("https://login.example.org"), resource_server_url=None)


async def test_a_server_with_a_verifier_of_its_own_checks_tokens_itself() -> None:
    server = create_server("s", [ask], keys=[KEY], auth=AUTH, token_verifier=Verifier())
    app = guarded(server, ALICE)
    async with serving(app) as address, client_of(address, BOB, "2026-07-28") as client:
        assert (await client.call_tool("ask", {})).structured_content == {"result": "accept"}


def test_a_server_that_exists_has_its_own_authentication() -> None:
    server: MCPServer[Any] = MCPServer("s", log_level="ERROR")
    with pytest.raises(ValueError, match=r"pass both to MCPServer\(…\)"):
        install(server, ask, auth=AUTH, token_verifier=Verifier())
    options = ServerOptions(auth=AUTH, token_verifier=Verifier())
    with pytest.raises(ValueError, match=r"pass both to FastMCP\(…\)"):
        install_fastmcp(FastMCP("s"), ask, options=options)
    with pytest.raises(ValueError, match=r"pass both to FastMCP\(…\)"):
        as_fastmcp_tool(ask, options=options)


@pytest.mark.parametrize(
    ("text", "said"), [("short", "at least 16 characters"), ("ä" * 16, "consists of letters")]
)
def test_tokens_that_cannot_be_used_are_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_tokens(text)


def test_several_tokens_are_separated_by_commas() -> None:
    assert read_tokens(f"{ALICE},{BOB}") == (ALICE, BOB)
    assert read_tokens(None) == ()


@pytest.mark.parametrize("line", ["no colon", "bad name: x", "X: a\nY: b", "X: ä"])
def test_a_text_that_is_no_header_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="is not a header"):
        headers_of(None, [line])


async def test_call_sends_headers_and_token() -> None:
    seen: list[dict[bytes, bytes]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.append(dict(scope["headers"]))
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body"})
            return
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async with serving(app) as (host, port):
        command = ["call", f"http://{host}:{port}/mcp", "x", "--token", ALICE]
        more = ["--header", "X-Team: rivers"]
        assert await anyio.to_thread.run_sync(main, [*command, *more]) == 1
    assert seen[0][b"authorization"] == f"Bearer {ALICE}".encode()
    assert seen[0][b"x-team"] == b"rivers"
