"""The configurations for nginx and Caddy in docs/reverse-proxy.md, in front of the real commands."""

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from tests.chat import web
from tests.cli.http_server import serving
from tests.interop import processes, web_process
from tests.interop.proxies.proxying import HOST, PROXIES, Proxy, proxying
from tests.patience import PATIENCE

TARGET = Path(__file__).with_name("proxied.py")

Address = tuple[str, int]


@pytest.fixture(params=PROXIES)
def proxy(request: pytest.FixtureRequest) -> Proxy:
    return PROXIES[request.param]


@pytest.fixture
def tools(proxy: Proxy, tmp_path: Path) -> Generator[Address]:
    """Return the address of a proxy in front of ``anabranch serve``."""
    with (
        processes.serving(TARGET, options=["--allowed-host", HOST]) as url,
        proxying(proxy, tmp_path, url.split("/")[2]) as address,
    ):
        yield address


def client_of(address: Address) -> httpx2.AsyncClient:
    url = f"http://{address[0]}:{address[1]}"
    return httpx2.AsyncClient(base_url=url, headers={"Host": HOST}, timeout=PATIENCE)


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_progress_and_a_question_pass_while_the_call_runs(tools: Address, mode: Any) -> None:
    """A proxy that buffers the reply until its end would block the call for ever."""
    url, reported = f"http://{tools[0]}:{tools[1]}/mcp", list[str | None]()

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        reported.append(message)
        await client.call_tool("hear", {})

    async def accept(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"ok": True})

    async with client_of(tools) as http:
        connection = streamable_http_client(url, http_client=http)
        async with Client(connection, mode=mode, elicitation_callback=accept) as client:
            async with asyncio.timeout(PATIENCE):
                result = await client.call_tool("talk", {}, progress_callback=hear)
    assert result.structured_content == {"result": "accept"}
    assert reported == ["half done"]


@pytest.mark.parametrize(
    "rest", [b"", b"Content-Length: 9\r\n\r\n{"], ids=["part of a head", "part of a body"]
)
async def test_a_request_that_does_not_arrive_ends_with_its_connection(
    tools: Address, rest: bytes
) -> None:
    reader, writer = await asyncio.open_connection(*tools)
    writer.write(b"POST /mcp HTTP/1.1\r\nHost: tools.example.org\r\n" + rest)
    async with asyncio.timeout(PATIENCE):
        await reader.read()  # ends with the connection
    writer.close()


async def test_a_body_that_is_too_long_is_refused(tools: Address) -> None:
    async with client_of(tools) as client:
        too_long = b"x" * (4 * 2**20 + 1)
        async with client.stream("POST", "/mcp", content=too_long) as reply:
            assert reply.status_code in {
                413,
                502,
            }  # the connection may end before the error text arrives
        assert (await client.get("/healthz")).json() == {"status": "alive"}


async def test_a_server_sees_the_address_of_the_client_whatever_it_claims(
    proxy: Proxy, tmp_path: Path
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await JSONResponse(scope["client"][0])(scope, receive, send)

    async with serving(app) as (host, port):
        with proxying(proxy, tmp_path, f"{host}:{port}") as address:
            async with client_of(address) as client:
                reply = await client.get("/", headers={"X-Forwarded-For": "192.0.2.1"})
    assert reply.json() == "127.0.0.1"


async def test_events_of_a_conversation_pass_as_they_happen(proxy: Proxy, tmp_path: Path) -> None:
    with (
        web_process.serving(tmp_path, "tools.py", "--allowed-host", HOST) as (_, url),
        proxying(proxy, tmp_path, url.split("/")[2]) as address,
    ):
        async with client_of(address) as client:
            await client.post("/threads", json={"id": "t1"})
            async with client.stream("GET", "/threads/t1/events") as events:
                accepted = {"Accept": "application/json"}
                said = await client.post("/agui", json=web.message("fork"), headers=accepted)
                assert said.status_code == 202
                async for line in events.aiter_lines():
                    if "RUN_FINISHED" in line:
                        break
                else:
                    pytest.fail("the stream has ended")
