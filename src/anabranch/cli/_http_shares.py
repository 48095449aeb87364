"""The requests of one caller that a server over HTTP has in progress: no caller takes all its connections.

A request may be in progress for long: a live call waits for its person, and a stream for whatever
comes. What answers a server's question, and what cancels or ends something, is soon over: it has
a share of its own, so that it is not refused while calls wait for it.
"""

from __future__ import annotations

from typing import Final, cast

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch._budget import FullShareError, Shares, by_address
from anabranch._text import read_json
from anabranch.cli._http_requests import Requests

AGAIN: Final = "1"
"""Seconds after which a request that was refused may be sent again."""


class SharedRequests:
    """An application of which each caller gets a share, and which gets requests whole.

    Args:
        app: the application.
        most: how many requests of one caller are in progress at the same time; beside them, half as
            many may arrive, or be soon over.
        by_token: whether tokens are checked, so that one names a caller. Otherwise an address does.
    """

    def __init__(self, app: ASGIApp, most: int, *, by_token: bool) -> None:
        self._app = app
        self._whole = Requests(self._shared)
        self._shares = Shares(most)
        self._arriving = Shares(most + max(1, most // 2))
        self._by_token = by_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            with self._arriving.place(self._caller(scope)):
                await self._whole(scope, receive, send)
        except FullShareError:
            await self._refuse(scope, receive, send)

    async def _shared(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            await self._refuse(scope, receive, send)
            return

        async def replayed() -> Message:
            nonlocal body
            read, body = body, None
            return read or await receive()

        await self._app(scope, replayed, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = PlainTextResponse(
            f"{self._shares.most} requests of yours are in progress here. Wait for one to end.\n",
            429,
            {"Retry-After": AGAIN, "Connection": "close"},
        )
        await refusal(scope, receive, send)


def _begins(body: bytes) -> bool:
    """Whether a message of JSON-RPC may be a request, which has a method and an id.

    What cannot be read here may be one to another reader, which takes other encodings or depths.
    """
    try:
        message = read_json(body.decode())
    except ValueError:
        return True
    if not isinstance(message, dict):
        return True
    return {"method", "id"} <= cast("dict[str, object]", message).keys()
