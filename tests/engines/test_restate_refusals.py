"""What the engine on Restate refuses, and what it says when Restate does not answer as it should."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from anabranch.engines import RestateEngine, Wake, WorkLimits
from anabranch.engines._names import encoded
from anabranch.engines._restate_names import service_of
from anabranch.errors import StoreError
from tests.sockets import listening

WAKE = Wake("c", "0", "a")


async def advance(wake: Wake) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (partial(RestateEngine, "postgresql://db"), "a URL like http://host:8080"),
        (partial(RestateEngine, "http://host:none"), "a URL like http://host:8080"),
        (partial(RestateEngine, "http://host", admin="host:9070"), "not 'host:9070'"),
        (partial(RestateEngine, "http://host", address="worker:9080"), "not 'worker:9080'"),
        (partial(RestateEngine, "http://host", prefix="my-app"), "not 'my-app'"),
    ],
    ids=["scheme", "port", "admin", "address", "prefix"],
)
async def test_what_cannot_be_reached_is_refused(make: Callable[[], Any], wrong: str) -> None:
    with pytest.raises(StoreError, match=wrong):
        make()


async def test_a_limit_over_all_workers_is_refused() -> None:
    engine = RestateEngine("http://127.0.0.1:1")
    with pytest.raises(StoreError, match="no limit for a share over all workers"):
        await engine.work({"a": "1"}, advance, WorkLimits(per_share=1))
    await engine.close()


@pytest.mark.parametrize("where", ["9080", "127.0.0.1:port", "127.0.0.1:99999", "203.0.113.1:0"])
async def test_an_address_that_is_no_address_here_is_refused(where: str) -> None:
    engine = RestateEngine("http://127.0.0.1:1", listen=where)
    with pytest.raises(StoreError, match=r"listens? at"):
        await engine.work({"a": "1"}, advance, WorkLimits())
    await engine.close()


async def test_a_restate_that_is_down_is_reported() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        engine = RestateEngine(url, admin=url)
        with pytest.raises(StoreError, match=r"Restate at 127\.0\.0\.1:\d+ cannot be reached"):
            await engine.wake(WAKE)
        await engine.close()


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (b"500 Internal Server Error\r\nContent-Length: 0", "refused a request, with status 500"),
        (b"202 Accepted\r\nContent-Length: 2", "something else than a JSON object"),
    ],
    ids=["status", "text"],
)
async def test_an_answer_that_is_not_restates_is_reported(answer: bytes, wrong: str) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 " + answer + b"\r\nConnection: close\r\n\r\n[]")
        await writer.drain()

    async with listening(reply) as port:
        engine = RestateEngine(f"http://127.0.0.1:{port}", admin=f"http://127.0.0.1:{port}")
        with pytest.raises(StoreError, match=wrong):
            await engine.wake(WAKE)
        await engine.close()


async def test_a_wake_without_any_worker_waits_and_no_more_than_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.engines._restate.HELD_AT_MOST", 1)

    async def unknown(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()

    async with listening(unknown) as port:
        engine = RestateEngine(f"http://127.0.0.1:{port}", admin=f"http://127.0.0.1:{port}")
        await engine.wake(WAKE)
        await engine.wake(WAKE)
        with pytest.raises(StoreError, match="knows no worker for 'b'"):
            await engine.wake(Wake("d", "0", "b"))
        await engine.close()


def test_names_stay_different() -> None:
    names = ["a/b", "a.b", "a_b", "a~b", "a%b", "a b", "ä", ".", "..", "a.2Fb"]
    assert len({encoded(name) for name in names}) == len(names)
    assert all(set(encoded(name)) & set("/%~_ ") == set() for name in names)
    assert service_of("p", "a", "b/1") != service_of("p", "a/b", "1") != service_of("p", "a_b", "1")
