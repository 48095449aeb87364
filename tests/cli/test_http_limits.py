"""What one client of a server over HTTP can take from it: connections, time, sessions, log lines."""

import asyncio
import logging
import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import IO, Any

import httpx2
import pytest
from mcp.server.mcpserver import MCPServer
from starlette.types import Receive, Scope, Send

from anabranch._terminal.exits import UsageError
from anabranch.cli._endpoint import Endpoint
from anabranch.cli._http_access import Access
from anabranch.cli._http_connections import Bounds
from anabranch.cli._http_requests import Requests
from anabranch.cli._http_sessions import Sessions
from tests.cli.http_server import mcp_app, serving

HEAD = b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n"
BODY = HEAD + b"content-type: application/json\r\ncontent-length: 1000\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"PO", HEAD])
async def test_a_connection_that_sends_no_whole_head_is_closed(sent: bytes) -> None:
    async with serving(mcp_app(), Bounds(head=0.1)) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()


async def test_a_connection_is_not_closed_while_it_is_used() -> None:
    async with serving(mcp_app(), Bounds(head=0.1)) as address:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(3):
            writer.write(b"GET /other HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b"404" in await reader.readline()
            assert b"Not Found" in await reader.readuntil(b"Not Found")
        writer.write(HEAD)  # the head of the next request begins, and does not go on
        assert await reader.read() == b""
        writer.close()


async def test_a_body_that_does_not_arrive_is_refused() -> None:
    server: MCPServer[Any] = MCPServer("s", log_level="ERROR")
    app = Requests(server.streamable_http_app(), patience=0.1)
    async with serving(app, Bounds()) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(BODY + b"{")
        reply = await reader.read()
        writer.close()
    assert reply.startswith(b"HTTP/1.1 408 ")
    assert reply.endswith(b"The request did not arrive within 0.1 s.\n")


async def test_a_broken_upload_is_one_debug_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "anabranch")
    begun, ended = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await inner(scope, receive, send)
            return
        begun.set()
        await inner(scope, receive, send)
        ended.set()

    inner = mcp_app()
    async with serving(app, Bounds()) as address:
        _, writer = await asyncio.open_connection(*address)
        writer.write(BODY + b"{")
        await begun.wait()
        writer.transport.abort()
        await ended.wait()
    (record,) = caplog.records
    assert (record.levelno, record.message) == (
        logging.DEBUG,
        "a client has left in the middle of its request",
    )


async def test_a_body_that_is_too_long_is_refused() -> None:
    transport = httpx2.ASGITransport(app=mcp_app())
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        reply = await client.post("/mcp", content=b"x" * (4 * 2**20 + 1))
    assert reply.status_code == 413


async def test_connections_above_the_limit_are_refused_with_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(mcp_app(), Bounds(connections=2)) as address:
        held = [await asyncio.open_connection(*address) for _ in range(2)]
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*address)
            assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
            writer.close()
        held[0][1].close()
        await held[0][1].wait_closed()
        assert b"404" in await status_line(address)
        held[1][1].close()
    assert [record.message for record in caplog.records] == [
        "connections are refused above 2; see --max-connections"
    ]


async def status_line(address: tuple[str, int]) -> bytes:
    """Return the first line of a reply, from the first connection that is not refused."""
    while True:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /other HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        try:
            line = await reader.readline()
        except ConnectionResetError:
            continue
        finally:
            writer.close()
        if b"503" not in line:
            return line


def test_a_server_without_file_descriptors_says_so_once(served: Path) -> None:
    """And it serves again when there are some."""

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

    command = [sys.executable, "-m", "anabranch", "serve", str(served), "--transport", "http"]
    with subprocess.Popen(
        [*command, "--port", "0", "--max-connections", "40"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ANABRANCH_KEYS": "k" * 32},
        preexec_fn=few_files,  # noqa: PLW1509 - nothing here has threads yet
    ) as server:
        try:
            assert server.stderr is not None
            found = re.search(r"http://127.0.0.1:(\d+)/mcp", server.stderr.readline())
            assert found
            exhaust(("127.0.0.1", int(found[1])), server.stderr)
            server.terminate()
            assert "new connections wait" not in server.stderr.read()
        finally:
            server.kill()


def exhaust(address: tuple[str, int], shown: IO[str]) -> None:
    with ExitStack() as held:
        for _ in range(60):
            held.enter_context(socket.create_connection(address))
        said = shown.readline()
    assert "new connections wait: Too many open files. Lower --max-connections" in said
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET /other HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 404"


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        (Endpoint("http", max_connections=0), "cannot serve 0 connections"),
        (Endpoint("http", max_connections=10**9), "raise that limit"),
        (Endpoint("http", session_ttl=0), "A session cannot end after 0 s"),
    ],
)
def test_limits_that_cannot_be_meant_are_refused(endpoint: Endpoint, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        endpoint.check()


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}


async def opened(client: httpx2.AsyncClient) -> str:
    reply = await client.post("/mcp", json=HELLO)
    assert reply.status_code == 200
    return str(reply.headers["mcp-session-id"])


async def pinged(client: httpx2.AsyncClient, session: str) -> int:
    reply = await client.post("/mcp", json=PING, headers={"mcp-session-id": session})
    return reply.status_code


@asynccontextmanager
async def client_of(most: int) -> AsyncGenerator[httpx2.AsyncClient]:
    server: MCPServer[Any] = MCPServer("s", log_level="ERROR")
    app = Sessions(
        server.streamable_http_app(transport_security=Access(("*",)).settings()),
        most=most,
        spared=0.0,
    )
    headers = {"accept": "application/json, text/event-stream"}
    async with (
        server.session_manager.run(),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url="http://test", headers=headers
        ) as client,
    ):
        yield client


async def test_a_new_session_takes_the_place_of_one_that_was_never_used() -> None:
    async with client_of(most=3) as client:
        used, unused, newer = [await opened(client) for _ in range(3)]
        assert await pinged(client, used) == 200
        newest = await opened(client)
        assert [await pinged(client, each) for each in (used, unused, newer, newest)] == [
            200,
            404,
            200,
            200,
        ]


async def test_a_new_session_takes_the_place_of_the_one_used_least_recently() -> None:
    async with client_of(most=3) as client:
        sessions = [await opened(client) for _ in range(3)]
        for each in (*sessions, sessions[0]):
            assert await pinged(client, each) == 200
        newest = await opened(client)
        assert [await pinged(client, each) for each in (*sessions, newest)] == [
            200,
            404,
            200,
            200,
        ]


async def test_a_session_that_its_client_ends_makes_room() -> None:
    async with client_of(most=2) as client:
        first, second = [await opened(client) for _ in range(2)]
        reply = await client.delete("/mcp", headers={"mcp-session-id": second})
        assert reply.status_code == 200
        third = await opened(client)
        assert [await pinged(client, each) for each in (first, second, third)] == [200, 404, 200]
