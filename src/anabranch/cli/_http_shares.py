"""Limits of the requests that a server over HTTP has in progress: of all callers, and of each one.

uvicorn's own ``limit_concurrency`` refuses health checks as well, and lets one caller use all
places. A message that answers a server's question, or cancels a call, ends soon, and has a separate
share: calls in progress wait for it.
"""

from __future__ import annotations

import logging
from typing import Final, cast

from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from anabranch._aio import ThrottledWarning
from anabranch._budget import Shares, by_address
from anabranch._health import asks_for_health
from anabranch._text import read_json

logger: logging.Logger = logging.getLogger("anabranch.cli")

AGAIN: Final = {"Retry-After": "1", "Connection": "close"}
"""Headers of a refusal: the client may send the request again after a second, over a new connection."""

ALL: Final = ""


class SharedRequests:
    """ASGI middleware that refuses requests while too many are in progress.

    Health checks always pass. A caller has ``share`` requests, and half as many messages that end
    soon; ``None`` sets no limit. A bearer token or the address identifies the caller.
    """

    def __init__(
        self, app: ASGIApp, most: int, share: int | None = None, *, by_token: bool = False
    ) -> None:
        self._app = app
        self._all = Shares(most)
        self._callers = Shares(share)
        self._soon = Shares(0 if share is None else max(1, share // 2))
        self._by_token = by_token
        self._refused = ThrottledWarning(logger)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or asks_for_health(scope):
            await self._app(scope, receive, send)
            return
        caller = self._caller(scope)
        if self._callers.is_full(caller) or self._all.is_full(ALL):
            await self._beyond(caller, scope, receive, send)
            return
        with self._callers.place(caller), self._all.place(ALL):
            await self._app(scope, receive, send)

    def _caller(self, scope: Scope) -> str:
        given = Headers(scope=scope).get("authorization", "") if self._by_token else ""
        return given.partition(" ")[2] or by_address((scope.get("client") or ("",))[0])

    async def _beyond(self, caller: str, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET" or self._soon.is_full(caller):
            await self._refusal(caller)(scope, receive, send)
            return
        with self._soon.place(caller):
            read = await _read(receive) if scope["method"] == "POST" else []
            if read and _begins(b"".join(each.get("body", b"") for each in read)):
                await self._refusal(caller)(scope, receive, send)
                return

            async def replayed() -> Message:
                return read.pop(0) if read else await receive()

            await self._app(scope, replayed, send)

    def _refusal(self, caller: str) -> PlainTextResponse:
        if self._callers.is_full(caller):
            text = f"{self._callers.most} requests of yours are in progress here. Wait for one to end.\n"
            return PlainTextResponse(text, 429, AGAIN)
        self._refused.warn("requests are refused above %d; see --limit-concurrency", self._all.most)
        return PlainTextResponse("Too many requests are in progress here.\n", 503, AGAIN)


async def _read(receive: Receive) -> list[Message]:
    read, size = list[Message](), 0
    while size <= DEFAULT_MAX_REQUEST_BODY_SIZE:
        message = await receive()
        read.append(message)
        size += len(message.get("body", b""))
        if not message.get("more_body", False):
            break
    return read


def _begins(body: bytes) -> bool:
    """Return whether ``body`` may be a JSON-RPC request; an unreadable one counts as such."""
    try:
        message = read_json(body.decode())
    except ValueError:
        return True
    if not isinstance(message, dict):
        return True
    return {"method", "id"} <= cast("dict[str, object]", message).keys()
