"""The requests of one caller that a server over HTTP has in progress: no caller takes all its connections.

A request may be in progress for long: a live call waits for its person, and a stream for whatever
comes. What answers a server's question, and what cancels or ends something, is never refused.
"""

from __future__ import annotations

from typing import Final, cast

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch._json_text import read_json
from anabranch._shares import FullShareError, Shares, by_address

__all__ = ["SharedRequests"]

AGAIN: Final = "1"
"""Seconds after which a request that was refused may be sent again."""


class SharedRequests:
    """An application of which each caller gets a share; it gets the body of a request whole.

    Args:
        app: the application.
        most: how many requests of one caller are in progress at the same time.
        by_token: whether tokens are checked, so that one names a caller. Otherwise an address does.
    """

    def __init__(self, app: ASGIApp, most: int, *, by_token: bool) -> None:
        self._app = app
        self._shares = Shares(most)
        self._by_token = by_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            with self._shares.place(self._caller(scope)):
                await self._app(scope, receive, send)
        except FullShareError:
            await self._beyond(scope, receive, send)

    def _caller(self, scope: Scope) -> str:
        given = Headers(scope=scope).get("authorization", "") if self._by_token else ""
        return given.partition(" ")[2] or by_address((scope.get("client") or ("",))[0])

    async def _beyond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request beyond the share if it takes no place for long."""
        body = await receive() if scope["method"] == "POST" else None
        begins = scope["method"] == "GET" or (body is not None and _begins(body.get("body", b"")))
        if begins:
            refusal = PlainTextResponse(
                f"{self._shares.most} requests of yours are in progress here. Wait for one to end.\n",
                429,
                {"Retry-After": AGAIN, "Connection": "close"},
            )
            await refusal(scope, receive, send)
            return

        async def replayed() -> Message:
            nonlocal body
            read, body = body, None
            return read or await receive()

        await self._app(scope, replayed, send)


def _begins(body: bytes) -> bool:
    """Whether a message of JSON-RPC is a request: it has a method and an id, unlike what answers one."""
    try:
        message = read_json(body.decode())
    except ValueError:  # refused in the SDK's own words
        return False
    if not isinstance(message, dict):
        return False
    return {"method", "id"} <= cast("dict[str, object]", message).keys()
