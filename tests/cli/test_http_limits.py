"""HTTP request bodies that break off or are too long."""

import asyncio
import logging

import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from anabranch.cli._http_server import Lifetime
from tests.cli.http_server import mcp_app, serving

UPLOAD = (
    b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-protocol-version: 2026-07-28\r\n"
    b"accept: application/json, text/event-stream\r\n"
    b"content-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
)


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

    inner = Lifetime(mcp_app())
    async with serving(app) as address:
        _, writer = await asyncio.open_connection(*address)
        writer.write(UPLOAD)
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
