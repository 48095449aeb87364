"""One caller of an HTTP server cannot use up the connections of other callers and of health checks."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch._health import Health, Watched
from anabranch.chat import make_chat_app
from anabranch.cli._endpoint import Endpoint
from anabranch.cli._http_access import SharedRequests
from tests.agents.memory import MemoryTrees
from tests.chat.web import message, model, reserve
from tests.cli.http_server import serving
from tests.patience import PATIENCE

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
GET = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
OTHER = b"GET /other HTTP/1.1\r\nhost: localhost\r\n\r\n"
CALL = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}'
ANSWER = b'{"jsonrpc": "2.0", "id": 1, "result": {}}'
NESTED = CALL[:-1] + b', "params": ' + b"[" * 200 + b"]" * 200 + b"}"


async def reply(address: tuple[str, int], request: bytes) -> bytes:
    """Send a request over a new connection, and return the whole reply."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_a_full_server_answers_health_checks_and_refuses_other_requests(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = Held()
    app = Watched(SharedRequests(held, 5), Health())
    async with serving(app, 5) as address:
        waiting = [asyncio.create_task(reply(address, GET)) for _ in range(5)]
        for _ in waiting:
            await held.begun.acquire()
        for _ in range(20):
            alive = await reply(address, HEALTH)
            assert alive.startswith(b"HTTP/1.1 200 ")
            assert alive.endswith(b'{"status":"alive"}')
            refused = await reply(address, OTHER)
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in refused
            assert b"connection: close\r\n" in refused
        held.may_end.set()
        for each in await asyncio.gather(*waiting):
            assert each.startswith(b"HTTP/1.1 200 ")
        assert (await reply(address, GET)).startswith(b"HTTP/1.1 200 ")
    assert [record.message for record in caplog.records] == [
        "requests are refused above 5; see --limit-concurrency"
    ]


async def test_streams_of_one_user_do_not_block_other_users() -> None:
    """The limits of ``anabranch web``: one user opens more streams than the share, of 40 requests."""
    endpoint = Endpoint("http", limit_concurrency=40)
    app = make_chat_app(MemoryTrees(), model(), [reserve], max_streams=endpoint.user_share)
    statuses: list[int] = []
    async with serving(SharedRequests(app, 40), 40) as (host, port):
        url = f"http://{host}:{port}"
        limits = httpx2.Limits(max_connections=None)
        async with (
            httpx2.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as greedy,
            httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as other,
            AsyncExitStack() as stack,
        ):
            await greedy.post("/threads", json={"id": "t1"})
            for _ in range(endpoint.user_share + 3):
                stream = await stack.enter_async_context(greedy.stream("GET", "/threads/t1/events"))
                statuses.append(stream.status_code)
                if stream.status_code != 200:
                    await stream.aclose()
            assert statuses == [200] * endpoint.user_share + [429] * 3
            for path in ("/healthz", "/readyz", "/threads", "/"):
                assert (await other.get(path)).status_code == 200
            assert (await other.post("/agui", json=message("hello"))).status_code == 429


@asynccontextmanager
async def two_users(**options: Any) -> AsyncGenerator[tuple[httpx2.AsyncClient, ...]]:
    async def authenticate(request: Any) -> str | None:
        name: str | None = request.headers.get("x-name")
        return name

    app = make_chat_app(MemoryTrees(), model(), [reserve], authenticate=authenticate, **options)
    async with serving(app) as (host, port), AsyncExitStack() as stack:
        url = f"http://{host}:{port}"
        yield tuple(
            [
                await stack.enter_async_context(
                    httpx2.AsyncClient(base_url=url, headers={"x-name": name}, timeout=PATIENCE)
                )
                for name in ("ann", "bo")
            ]
        )


async def test_a_user_has_a_share_of_the_event_streams_until_one_ends() -> None:
    async with two_users(max_streams=2) as (ann, bo), AsyncExitStack() as stack:
        for each, thread in ((ann, "a"), (bo, "b")):
            await each.post("/threads", json={"id": thread})
        held = [
            await stack.enter_async_context(ann.stream("GET", "/threads/a/events"))
            for _ in range(2)
        ]
        refused = await ann.get("/threads/a/events")
        assert refused.status_code == 429
        assert (refused.headers["retry-after"], refused.headers["connection"]) == ("5", "close")
        assert "You have 2 streams of events open" in refused.json()["error"]
        said = await ann.post("/agui", json=message("hello", thread="a"))
        assert said.status_code == 429
        assert (await ann.get("/threads/a/tree")).json()["nodes"] == []
        for body in (message("hello", thread="b"), message("again", thread="b", run="r2")):
            assert (await bo.post("/agui", json=body)).status_code == 200
        await held[0].aclose()
        async with asyncio.timeout(
            PATIENCE
        ):  # the server notices by itself that the stream has ended
            while said.status_code == 429:
                said = await ann.post("/agui", json=message("hello", thread="a"))
        assert said.status_code == 200


async def test_a_run_that_is_refused_or_followed_elsewhere_takes_no_stream() -> None:
    async with two_users(max_streams=1) as (ann, _):
        accepted = {"Accept": "application/json"}
        for number in range(3):
            refused = await ann.post("/agui", json=message("x", thread="no such id"))
            assert refused.status_code == 422
            body = message("hello", thread=f"t{number}", run=f"r{number}")
            assert (await ann.post("/agui", json=body, headers=accepted)).status_code == 202
            body = message("hello", thread=f"u{number}", run=f"s{number}")
            assert (await ann.post("/agui", json=body)).status_code == 200


async def test_a_principal_has_a_share_by_default() -> None:
    async with two_users() as (ann, _), AsyncExitStack() as stack:
        await ann.post("/threads", json={"id": "a"})
        for _ in range(100):
            await stack.enter_async_context(ann.stream("GET", "/threads/a/events"))
        async with httpx2.AsyncClient(base_url=ann.base_url, headers=ann.headers) as more:
            assert (await more.get("/threads/a/events")).status_code == 429


def test_a_share_of_no_stream_is_refused() -> None:
    with pytest.raises(ValueError, match="max_streams must be at least 1, not 0"):
        make_chat_app(MemoryTrees(), model(), max_streams=0)


class Held:
    """An application that holds its requests until the test releases them."""

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)
        self.may_end = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if scope["method"] == "GET" or b'"method"' in body:
            self.begun.release()
            await self.may_end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


async def status(
    app: ASGIApp,
    *,
    token: str = "",
    body: bytes = CALL,
    method: str = "POST",
    address: str = "1.2.3.4",
    parts: int = 1,
) -> int:
    headers = [(b"authorization", token.encode())] if token else []
    request = {"method": method, "path": "/mcp", "headers": headers}
    scope = {"type": "http", "client": (address, 1), **request}
    sent: list[Message] = []
    size = -(-len(body) // parts) or 1
    unread = [body[at : at + size] for at in range(0, len(body), size)] or [b""]

    async def receive() -> Message:
        part = unread.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(unread)}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    found: int = sent[0]["status"]
    return found


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        ("1.2.3.4", "1.2.3.4", "1.2.3.5"),
        ("::ffff:1.2.3.4", "1.2.3.4", "::ffff:1.2.3.5"),
        ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"),
        ("", "", "1.2.3.4"),
    ],
    ids=["IPv4", "IPv4 of a socket for both", "IPv6", "none"],
)
async def test_a_caller_without_a_token_is_its_address(one: str, same: str, other: str) -> None:
    held = Held()
    app = SharedRequests(held, 10, 1)
    waiting = [asyncio.ensure_future(status(app, address=each)) for each in (one, other)]
    async with asyncio.timeout(PATIENCE):
        for _ in waiting:
            await held.begun.acquire()
    assert await status(app, address=same) == 429
    held.may_end.set()
    assert await asyncio.gather(*waiting) == [200, 200]


@pytest.mark.parametrize("by_token", [True, False], ids=["token", "address"])
async def test_a_caller_of_tools_has_a_share_of_the_requests(by_token: bool) -> None:
    held = Held()
    app = SharedRequests(held, 10, 2, by_token=by_token)
    one: dict[str, Any] = {"token": "Bearer one"} if by_token else {"address": "1.2.3.4"}
    two: dict[str, Any] = {"token": "Bearer two"} if by_token else {"address": "2.3.4.5"}
    waiting = [asyncio.ensure_future(status(app, **one)) for _ in range(2)]
    for _ in waiting:
        await held.begun.acquire()
    same: dict[str, Any] = {"token": "bEARER one"} if by_token else {**one, "token": "Bearer other"}
    for method in ("POST", "GET"):
        assert await status(app, method=method, **same) == 429
    other = asyncio.ensure_future(status(app, **two))
    await held.begun.acquire()
    assert await status(app, body=ANSWER, **one) == 200
    assert await status(app, body=ANSWER, parts=3, **one) == 200
    for other_ways in (
        CALL.decode().encode("utf-16"),
        b"\xef\xbb\xbf" + CALL,
        NESTED,
        b"no JSON",
        b"[]",
    ):
        assert await status(app, body=other_ways, **one) == 429
    assert await status(app, method="DELETE", body=b"", **one) == 200
    held.may_end.set()
    assert await asyncio.gather(*waiting, other) == [200, 200, 200]
    assert await status(app, **one) == 200


async def test_an_answer_reaches_a_full_server() -> None:
    """Otherwise the calls that wait for the answer would keep the server full."""
    held = Held()
    app = SharedRequests(held, 2, 2)
    waiting = [asyncio.ensure_future(status(app)) for _ in range(2)]
    for _ in waiting:
        await held.begun.acquire()
    assert await status(app, address="2.3.4.5") == 503
    assert await status(app, address="2.3.4.5", body=ANSWER) == 200
    held.may_end.set()
    assert await asyncio.gather(*waiting) == [200, 200]
