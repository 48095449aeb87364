"""The connections of a server over HTTP: how many there are, and how long one may stay silent.

uvicorn limits neither: it waits for the head of a request for as long as the connection lasts, and
counts connections only when a request has come. So one client could hold every file descriptor.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
import time
from dataclasses import dataclass
from typing import Any, Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from anabranch.mcp._options import GRACE

__all__ = [
    "BACKLOG",
    "Bounds",
    "connection_class",
    "default_connections",
    "open_files",
    "report_exhaustion_seldom",
]

logger: logging.Logger = logging.getLogger("anabranch.cli")

BACKLOG = 128
"""Connections that are accepted in one go, before their number is looked at."""

MOST = 512
"""Connections that a process serves by default, where it may open twice as many files."""

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
    import resource  # noqa: PLC0415 - of Unix alone

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


class Seldom:
    """A line of the log that is written once a minute, however often there is a reason for it."""

    def __init__(self) -> None:
        self._next = 0.0

    def warn(self, text: str, *values: object) -> None:
        """Write it, unless that was done within the last minute."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 60
            logger.warning(text, *values)


class _Connection(H11Protocol):
    """A connection that is refused above the limit, and closed when no request comes."""

    bounds: Bounds
    refused: Seldom
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections:
            self.refused.warn(
                "connections are refused above %d; see --max-connections", self.bounds.connections
            )
            transport.write(REFUSAL)
            transport.close()
        else:
            self._await_request(_BUSY)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _await_request(self, before: object) -> None:
        """Close the connection if it is idle, and was so ``before``, after the same request."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        idle = cycle is None or cycle.response_complete
        if idle and before is cycle:
            self.shutdown()
            return
        now = cycle if idle else _BUSY
        self._timer = self.loop.call_later(self.bounds.head, self._await_request, now)


def connection_class(bounds: Bounds) -> type[H11Protocol]:
    """Return the class of a server's connections, for ``uvicorn.Config(http=)``."""
    members = {"bounds": bounds, "refused": Seldom()}
    return cast("type[H11Protocol]", type("Connection", (_Connection,), members))


def report_exhaustion_seldom(loop: asyncio.AbstractEventLoop) -> None:
    """Have ``loop`` report once a minute that no connection can be accepted.

    asyncio tries again each second, and reports each attempt with a traceback.
    """
    exhausted = Seldom()

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
