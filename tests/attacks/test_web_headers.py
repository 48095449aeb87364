"""Hostile queries, headers and cookies of a request: the web application always replies.

A browser sends the cookies of all ports of a host, so most cookies belong to other applications.
The tests give the application undecoded bytes, as a server does.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.chat import make_chat_app
from tests.agents.memory import MemoryTrees
from tests.chat.web import app_module, model, reserve
from tests.randomised import examples

TOKEN = 'a secret; of "words"'
HOST = b"127.0.0.1:8080"

Header = tuple[bytes, bytes]

HOSTILE = (
    b'prefs={"a":1}',
    b"anabranch_token",
    b"anabranch_token=x",
    b'anabranch_token="' + b'\\"' * 50,
    b"a=b=c",
    b"=",
    b"$Version=1",
    b'"',
    b"\xff\xfe",
    b"a\x00b",
    "naïve=é".encode(),
)
ORIGINS = (
    b"http://[",
    b"http://[::1",
    b"http://]",
    b"//",
    b"null",
    b"http://\xe2\x84\x80",
    "http://℀.example".encode(),
    b"http://127.0.0.1:99999999",
    b"http://127.0.0.1:8080@evil.example",
    b"http://evil.example",
    b"",
)
NAMES = (
    b"host",
    b"origin",
    b"cookie",
    b"authorization",
    b"content-length",
    b"content-type",
    b"accept",
    b"accept-encoding",
    b"if-none-match",
    b"last-event-id",
    b"x-forwarded-for",
)
VALUES = st.one_of(st.binary(max_size=40), st.sampled_from([*HOSTILE, *ORIGINS]))
PATHS = st.sampled_from(["/", "/threads", "/threads/t1/events", app_module(), "/threads/\x00/tree"])
COOKIES = st.lists(st.one_of(st.sampled_from(HOSTILE), st.binary(max_size=40)), max_size=4)


def application() -> Any:
    return make_chat_app(MemoryTrees(), model(), [reserve], token=TOKEN)


async def requested(
    app: Any, headers: Sequence[Header], *, path: str = "/threads", query: bytes = b""
) -> tuple[int, dict[bytes, bytes]]:
    """Return the status and headers of the reply; an exception of the application reaches the test."""
    sent = asyncio.Queue[Any]()
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": list(headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
    }
    unread, begun = [{"type": "http.request", "body": b""}], asyncio.Event()

    async def receive() -> Any:
        if unread:
            return unread.pop()
        await begun.wait()  # a client that left earlier would receive no reply
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        await sent.put(message)
        begun.set()

    await app(scope, receive, send)
    start = await sent.get()
    return start["status"], dict(start["headers"])


async def cookie_of(app: Any) -> bytes:
    """Return the cookie that the page gets for its token."""
    query = b"token=a+secret%3B+of+%22words%22"
    status, headers = await requested(app, [(b"host", HOST)], path="/", query=query)
    assert status == 303
    return headers[b"set-cookie"].partition(b"; ")[0]


@examples(300, gate=40)
@example([b'prefs={"a":1}'], [])
@given(COOKIES, COOKIES)
def test_cookies_of_others_are_not_read(before: list[bytes], after: list[bytes]) -> None:
    async def attempt() -> tuple[int, int]:
        app = application()
        own = await cookie_of(app)
        headers = [(b"host", HOST), (b"cookie", b"; ".join([*before, own, *after]))]
        others = [(b"host", HOST), (b"cookie", b"; ".join([*before, *after]))]
        return (await requested(app, headers))[0], (await requested(app, others))[0]

    assert asyncio.run(attempt()) == (200, 401)


@examples(500, gate=40)
@example([(b"host", HOST), (b"origin", b"http://[")], "/threads", b"")
@example([(b"host", HOST), (b"cookie", b'prefs={"a":1}')], "/threads", b"")
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=6), PATHS, st.binary(max_size=20)
)
def test_without_the_token_every_request_is_refused(
    headers: list[Header], path: str, query: bytes
) -> None:
    status, _ = asyncio.run(requested(application(), headers, path=path, query=query))
    assert 400 <= status < 500


@examples(500, gate=40)
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=6), PATHS, st.binary(max_size=20)
)
def test_with_the_token_every_request_is_answered(
    headers: list[Header], path: str, query: bytes
) -> None:
    async def attempt() -> int:
        app = application()
        own = [(b"host", HOST), (b"cookie", await cookie_of(app))]
        return (await requested(app, [*own, *headers], path=path, query=query))[0]

    assert asyncio.run(attempt()) < 500


@pytest.mark.parametrize("origin", ORIGINS, ids=repr)
async def test_a_foreign_origin_is_refused_with_one_line_in_the_log(
    origin: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        status, _ = await requested(application(), [(b"host", HOST), (b"origin", origin)])
    assert status == 403
    [record] = caplog.records
    assert record.exc_info is None
    assert "The server refuses requests from other sites." in record.getMessage()


@pytest.mark.parametrize("scheme", [b"http", b"https"])
async def test_the_origin_of_the_page_is_accepted(scheme: bytes) -> None:
    app = application()
    headers = [(b"host", HOST), (b"origin", scheme + b"://" + HOST)]
    own = (b"cookie", await cookie_of(app))
    assert (await requested(app, [*headers, own]))[0] == 200
