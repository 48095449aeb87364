"""The sessions of clients up to 2025-11-25 over HTTP: when there are too many, one has to end.

The SDK refuses further sessions above its limit until one expires, half an hour later. Here an idle
session makes room: one that has never been used, otherwise the one that was used least recently.
Its client is answered with 404, on which it begins another.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST = 2_000
"""Sessions at the same time, in one process."""

SPARED = 1.0
"""Seconds that a client has to use its new session, before that makes room first."""

HEADER = "mcp-session-id"


@dataclass(slots=True)
class _Session:
    """A session, and the request that has opened it, with whose credentials it can be ended."""

    opening: Scope
    since: float = field(default_factory=time.monotonic)
    used: bool = False
    in_flight: int = 0


class Sessions:
    """An application whose sessions are limited.

    Args:
        app: the SDK's application.
        most: how many sessions there are at the same time; those with a request in flight stay.
        spared: seconds for which a session that has not been used is like any other.
    """

    def __init__(self, app: ASGIApp, *, most: int = MOST, spared: float = SPARED) -> None:
        self._app = app
        self._most = most
        self._spared = spared
        self._open: dict[str, _Session] = {}  # the one that was used last is the last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = Headers(scope=scope).get(HEADER, "")

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                opened = Headers(raw=message["headers"]).get(HEADER)
                if opened and not name:
                    await self._add(opened, scope)
                elif scope["method"] == "DELETE" and message["status"] < 400:  # noqa: PLR2004
                    self._open.pop(name, None)
            await send(message)

        session = self._open.pop(name, None)
        if session is None:
            await self._app(scope, receive, watched)
            return
        self._open[name] = session
        session.used = True
        session.in_flight += 1
        try:
            await self._app(scope, receive, watched)
        finally:
            session.in_flight -= 1

    async def _add(self, name: str, opening: Scope) -> None:
        if len(self._open) >= self._most:
            await self._make_room()
        self._open[name] = _Session(opening)

    async def _make_room(self) -> None:
        idle = [(name, each) for name, each in self._open.items() if not each.in_flight]
        if not idle:
            return
        before = time.monotonic() - self._spared
        unused = (pair for pair in idle if not pair[1].used and pair[1].since <= before)
        name, session = next(unused, idle[0])
        del self._open[name]
        headers = [
            *(pair for pair in session.opening["headers"] if not pair[0].startswith(b"content-")),
            (HEADER.encode(), name.encode()),
        ]
        await self._app({**session.opening, "method": "DELETE", "headers": headers}, _empty, _drop)


async def _empty() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _drop(message: Message) -> None:
    """Discard the reply to a request that no client has sent."""
