"""The connections of a server over HTTP: how many there are, and how long one may stay silent.

uvicorn limits neither: it waits for the head of a request for as long as the connection lasts, and
counts connections only when a request has come. So one client could hold every file descriptor.

Beyond the limit there are a few *spare* connections, for health checks alone: a server that is busy
is not dead. Their number is small, so a new one takes the place of the oldest that has asked nothing.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from anabranch._aio import ThrottledWarning
from anabranch._health import asks_for_health
from anabranch.mcp._defaults import GRACE

logger: logging.Logger = logging.getLogger("anabranch.cli")

BACKLOG = 128
"""Connections that are accepted in one go, before their number is looked at."""

MOST = 512
"""Connections that a process serves by default, where it may open twice as many files."""

SPARE = 16
"""Connections beyond the limit, on which only health checks are answered."""

SPARED = 1.0
"""Seconds for the head of a request on one of these."""

REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 22\r\n"
    b"retry-after: 1\r\nconnection: close\r\n\r\nToo many connections.\n"
)

EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_BUSY: Final = object()


def open_files() -> int:
    """Return how many files, sockets included, this process may have open."""
    if sys.platform == "win32":
        return 8192
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def default_connections() -> int:
    """Return how many connections a process serves by default: half of its files at most."""
    return min(MOST, open_files() // 2)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one process of a server spends on its clients.

    Attributes:
        connections: at the same time.
        head: seconds for the head of a request, from the connection or the reply before.
        grace: seconds that calls get to be ended and undone when the server is stopped.
        access_log: whether each request is logged.
    """

    connections: int = MOST
    head: float = 10.0
    grace: float = GRACE
    access_log: bool = False


class _Connection(H11Protocol):
    """A connection that is closed when no request comes; above the limit, one for health checks."""

    bounds: Bounds
    refused: ThrottledWarning
    spare: dict[_Connection, None]
    """Those above the limit, in the order in which they came."""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) - len(self.spare) <= self.bounds.connections:
            self._await_request(_BUSY)
            return
        self.app = _HealthAlone(self.app, self._report)
        idle = [each for each in self.spare if not each.has_asked]
        if len(self.spare) >= SPARE:
            (idle[0] if idle else self).refuse()
        if not transport.is_closing():
            self.spare[self] = None
            self._timer = self.loop.call_later(min(SPARED, self.bounds.head), self.refuse)

    def connection_lost(self, exc: Exception | None) -> None:
        self.spare.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    @property
    def has_asked(self) -> bool:
        """Whether a request has begun on it."""
        return cast("RequestResponseCycle | None", self.cycle) is not None

    def refuse(self) -> None:
        """Close a spare connection that has asked nothing."""
        self.spare.pop(self, None)
        if not self.has_asked and not self.transport.is_closing():
            self._report()
            self.transport.write(REFUSAL)
            self.transport.close()

    def _await_request(self, before: object) -> None:
        """Close the connection if it is idle, and was so ``before``, after the same request."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        idle = cycle is None or cycle.response_complete
        if idle and before is cycle:
            self.shutdown()
            return
        now = cycle if idle else _BUSY
        self._timer = self.loop.call_later(self.bounds.head, self._await_request, now)

    def _report(self) -> None:
        self.refused.warn(
            "connections are refused above %d; see --max-connections", self.bounds.connections
        )


class _HealthAlone:
    """An application that only health checks reach, one on each connection."""

    def __init__(self, app: Any, report: Callable[[], None]) -> None:  # noqa: ANN401 - uvicorn's
        self._app = app
        self._report = report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not asks_for_health(scope):
            self._report()
            refusal = PlainTextResponse(
                "Too many connections.\n", 503, {"retry-after": "1", "connection": "close"}
            )
            await refusal(scope, receive, send)
            return

        async def once(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await self._app(scope, receive, once)


def connection_class(bounds: Bounds) -> type[H11Protocol]:
    """Return the class of a server's connections, for ``uvicorn.Config(http=)``."""
    spare: dict[_Connection, None] = {}
    members = {"bounds": bounds, "refused": ThrottledWarning(logger), "spare": spare}
    return cast("type[H11Protocol]", type("Connection", (_Connection,), members))


def report_exhaustion_seldom(loop: asyncio.AbstractEventLoop) -> None:
    """Have ``loop`` report once a minute that no connection can be accepted.

    asyncio tries again each second, and reports each attempt with a traceback.
    """
    exhausted = ThrottledWarning(logger)

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in EXHAUSTED and "socket" in context:
            exhausted.warn(
                "new connections wait: %s. Lower --max-connections, or allow more open files"
                " (ulimit -n).",
                error.strerror,
            )
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
