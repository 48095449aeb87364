"""The checks of requests over HTTP, before any of them reaches the SDK.

A request that is not received in time, or not to its end, never becomes a call.
"""

from __future__ import annotations

import asyncio
import logging

import anyio
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE, RequestBodyLimitMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger: logging.Logger = logging.getLogger("anabranch.cli")

BODY = 30.0
"""Seconds within which the body of a request must have arrived."""


class Requests:
    """An application that gets whole requests, and whose requests may be cancelled.

    Args:
        app: the application.
        patience: seconds for a request's body.
    """

    def __init__(self, app: ASGIApp, *, patience: float = BODY) -> None:
        self._app = app
        self._patience = patience
        self._limited = RequestBodyLimitMiddleware(self._whole, DEFAULT_MAX_REQUEST_BODY_SIZE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reply = _Reply(scope, receive, send)
        deadline = anyio.current_time() + self._patience
        whole = False

        async def timed() -> Message:
            nonlocal whole
            if whole:
                return await receive()
            with anyio.fail_after(deadline - anyio.current_time()):
                message = await receive()
            whole = not message.get("more_body", False)
            return message

        try:
            await self._limited(scope, timed, reply.send)
        except TimeoutError:
            if whole:
                raise
            await reply.end(408, f"The request did not arrive within {self._patience:g} s.")
        except asyncio.CancelledError:  # by the server, which stops
            await reply.end(503, "The server stops. Send the request again.")

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        first = await receive()
        if first["type"] != "http.request" or first.get("more_body", False):
            logger.debug("a client has left in the middle of its request")
            return
        unread = [first]

        async def replay() -> Message:
            return unread.pop() if unread else await receive()

        await self._app(scope, replay, send)


class _Reply:
    """The reply to a request, which can be ended whether it has begun or not."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._request = scope, receive
        self._send = send
        self._begun = False
        self._complete = False

    async def send(self, message: Message) -> None:
        self._begun = True
        self._complete = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)

    async def end(self, status: int, text: str) -> None:
        if not self._begun:
            headers = {"connection": "close"}
            response = PlainTextResponse(f"{text}\n", status_code=status, headers=headers)
            await response(*self._request, self._send)
        elif not self._complete:
            await self._send({"type": "http.response.body"})
