"""``/healthz`` and ``/readyz`` of the commands' servers, of apps made in code, and of the chat."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch import BranchContext, StoreError, tool
from anabranch._health import Health, Watched
from anabranch.chat import RateLimits, make_chat_app
from anabranch.mcp import create_server, install, install_fastmcp
from anabranch.stores import CallStore, open_store, open_stores
from tests.agents.memory import MemoryTrees
from tests.chat.web import model
from tests.cli.http_server import guarded

KEY = "a secret of at least thirty-two bytes"
TOKEN = "a" * 32


@tool
async def hello(ctx: BranchContext) -> str:
    return "hello"


@tool
async def other(ctx: BranchContext) -> str:
    return ""


@asynccontextmanager
async def asking(app: ASGIApp, host: str = "10.0.0.7") -> AsyncGenerator[httpx2.AsyncClient]:
    """Yield a client that asks as a load balancer does: by IP address and without a token."""
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
        yield client


async def state(client: httpx2.AsyncClient, path: str = "/readyz") -> tuple[int, str]:
    reply = await client.get(path)
    assert list(reply.json()) == ["status"]
    return reply.status_code, reply.json()["status"]


async def no_app(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("a health check reaches no application")


def a_server(store: CallStore | None) -> Any:
    return create_server("s", [hello], keys=[KEY], store=store)


def an_installation(store: CallStore | None) -> Any:
    server: MCPServer[Any] = MCPServer("s", log_level="ERROR")
    install(server, hello, keys=[KEY])
    install(server, other, store=store)
    return server


def a_fastmcp(store: CallStore | None) -> Any:
    server: FastMCP[Any] = FastMCP("s")
    install_fastmcp(server, hello, keys=[KEY], store=store)
    return server


def served(server: Any) -> ASGIApp:
    """Return the application of ``anabranch serve --token``."""
    return guarded(server, TOKEN)


def in_code(server: Any) -> ASGIApp:
    app: ASGIApp = (
        server.http_app() if isinstance(server, FastMCP) else server.streamable_http_app()
    )
    return app


MADE = pytest.mark.parametrize("make", [a_server, an_installation, a_fastmcp])


@MADE
@pytest.mark.parametrize("app_of", [served, in_code])
async def test_a_server_reports_that_it_is_alive_and_ready(make: Any, app_of: Any) -> None:
    store = open_store("memory:")
    try:
        async with asking(app_of(make(store))) as client:
            assert await state(client, "/healthz") == (200, "alive")
            assert await state(client) == (200, "ready")
            assert (await client.head("/readyz")).status_code == 200
            assert (await client.post("/readyz")).status_code == 405
    finally:
        await store.close()


@MADE
@pytest.mark.parametrize("app_of", [served, in_code])
async def test_a_server_without_its_store_is_alive_and_not_ready(
    make: Any, app_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store("memory:")
    await store.close()
    async with asking(app_of(make(store))) as client:
        assert await state(client, "/healthz") == (200, "alive")
        for _ in range(3):
            assert await state(client) == (503, "store unreachable")
    logged = [each.message for each in caplog.records if each.name == "anabranch.health"]
    assert logged == ["not ready: The store memory: has been closed."]


async def test_a_server_without_anabranch_tools_is_ready() -> None:
    async with asking(served(MCPServer("s", log_level="ERROR"))) as client:
        assert await state(client) == (200, "ready")
    async with asking(served(FastMCP("s"))) as client:
        assert await state(client) == (200, "ready")
        assert (await client.get("/mcp")).status_code == 401


async def test_a_store_of_another_release_is_not_ready(tmp_path: Path) -> None:
    """The first readiness check creates the tables, or finds another release's stamp."""
    file = tmp_path / "calls.db"
    url = f"sqlite:///{file}"
    store = open_store(url)
    async with asking(served(a_server(store))) as client:
        assert await state(client) == (200, "ready")
    await store.close()
    connection = sqlite3.connect(file)
    assert connection.execute("SELECT count(*) FROM anabranch_schema").fetchone() == (1,)
    connection.execute("UPDATE anabranch_schema SET stamp = 'other'")
    connection.commit()
    connection.close()
    store = open_store(url)
    async with asking(served(a_server(store))) as client:
        assert await state(client) == (503, "store unreachable")
    await store.close()


async def test_a_hanging_store_is_checked_once_at_a_time() -> None:
    begun, answers = 0, asyncio.Event()

    async def check() -> None:
        nonlocal begun
        begun += 1
        await answers.wait()

    async with asking(Watched(no_app, Health(check, patience=0.01))) as client:
        found = await asyncio.gather(*(state(client) for _ in range(5)))
        assert found == [(503, "store unreachable")] * 5
        assert begun == 1
        assert await state(client, "/healthz") == (200, "alive")
        answers.set()
        async with asyncio.timeout(120):
            while await state(client) != (200, "ready"):
                pass


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (StoreError("no route to db.internal"), "not ready: no route to db.internal"),
        (RuntimeError("db.internal"), "a store could not be checked"),
    ],
    ids=["known", "unknown"],
)
async def test_only_the_log_has_the_reason_why_a_server_is_not_ready(
    error: Exception, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    problems: list[Exception] = [error]

    async def check() -> None:
        if problems:
            raise problems[0]

    caplog.set_level(logging.INFO)
    async with asking(Watched(no_app, Health(check))) as client:
        assert await state(client) == (503, "store unreachable")
        problems.clear()
        assert await state(client) == (200, "ready")
    lines = [each.message for each in caplog.records if each.name == "anabranch.health"]
    assert lines == [logged, "ready again"]


async def test_a_stopping_server_is_not_ready() -> None:
    health = Health()
    messages: list[Message] = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while messages:
            await receive()

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None: ...

    watched = Watched(app, health)
    async with asking(watched) as client:
        assert await state(client) == (200, "ready")
        await watched({"type": "lifespan"}, receive, send)
        assert await state(client) == (503, "stopping")
        assert await state(client, "/healthz") == (200, "alive")


async def refuse(request: object) -> None:
    """Raise for every request, so that no one can authenticate."""


@pytest.mark.parametrize(
    "options",
    [{"token": TOKEN}, {"authenticate": refuse}, {"rates": RateLimits(requests=1)}],
    ids=["token", "authenticate", "rates"],
)
async def test_the_chat_reports_its_health_to_anyone_without_a_rate_limit(options: Any) -> None:
    calls, trees = open_stores("memory:")
    app = make_chat_app(trees, model(), [hello], calls=calls, **options)
    async with asking(Starlette(routes=[Mount("/chat", app)])) as client:
        for _ in range(3):
            assert await state(client, "/chat/healthz") == (200, "alive")
            assert await state(client, "/chat/readyz") == (200, "ready")
        await trees.close()
        assert await state(client, "/chat/readyz") == (503, "store unreachable")
        assert (await client.get("/chat/threads")).status_code == 421
    async with asking(make_chat_app(MemoryTrees(), model(), [])) as client:
        assert await state(client) == (200, "ready")
