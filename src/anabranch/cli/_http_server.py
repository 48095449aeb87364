"""uvicorn as the commands run it: when it serves, and how it is stopped.

A server that is stopped says so to what would go on for ever, and lets requests in progress go on for
a moment. Then uvicorn cancels those that are left, and the application's lifespan ends and undoes
their calls. What is not undone within the grace is cut off with the process, whatever holds it up: a
thread cannot be cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from types import FrameType
from typing import Any, NoReturn

import anyio
import uvicorn

from anabranch._aio import STOPPING
from anabranch._terminal.console import Console
from anabranch._terminal.exits import FailedError
from anabranch.cli._http_connections import (
    BACKLOG,
    Bounds,
    connection_class,
    report_exhaustion_seldom,
)

DRAIN = 2
"""Seconds, of the grace, for which requests in progress go on when a server is stopped."""

MOMENT = 0.1
"""Seconds within which streams of events end by themselves, once they know that the server stops."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on ``host`` (a name or an address) and ``port``; 0 for any.

    Raises:
        OSError: the port is in use, or the host is not of this machine (``gaierror``: is unknown).
        ValueError: the host is no name.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    socket.getaddrinfo(host, port, family)  # its error becomes another in create_server
    made = socket.create_server((host, port), family=family)
    # ``create_server`` leaves the protocol unspecified, and asyncio turns Nagle's algorithm off
    # only where it is TCP; with it, each reply would wait 40 ms for the previous one's ACK.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=made.detach())


def serve_app(
    app: Any,  # noqa: ANN401 - as uvicorn takes it
    listener: socket.socket,
    bounds: Bounds,
    *,
    on_started: Callable[[], object],
    around: AbstractAsyncContextManager[object] | None = None,
) -> None:
    """Serve an application in this process until Ctrl-C or SIGTERM.

    Args:
        app: the application.
        listener: where it is reached.
        bounds: what it spends on its clients.
        on_started: called when it serves.
        around: is entered before it starts, and left when it has ended.

    Raises:
        FailedError: the application did not start.
        CommandError: ``around`` raised it.
    """

    async def serve() -> None:
        async with around or nullcontext():
            await HttpServer(app, bounds, on_started, _cut_off).serve([listener])

    try:
        anyio.run(serve)
    except SystemExit as error:
        raise FailedError("The server could not start; the reason is above.") from error


class HttpServer(uvicorn.Server):
    """A server that reports its start, and whose connections and end are bounded."""

    def __init__(
        self,
        app: Any,  # noqa: ANN401 - as uvicorn takes it
        bounds: Bounds,
        on_started: Callable[[], object] = lambda: None,
        cut_off: Callable[[str], object] = lambda _: None,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=connection_class(bounds),
            backlog=BACKLOG,
            log_config=None,  # its records go to our own handler
            log_level="warning",
            timeout_graceful_shutdown=min(DRAIN, int(bounds.grace / 2)),
            ws="none",
        )
        super().__init__(config)
        if bounds.access_log:
            logging.getLogger("uvicorn.access").setLevel(logging.INFO)
        self._grace = bounds.grace
        self._on_started = on_started
        self._cut_off = cut_off
        self._interrupts = 0
        self._stopping = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and report it."""
        report_exhaustion_seldom(asyncio.get_running_loop())
        await super().startup(sockets)
        self.lifespan.state[STOPPING] = self._stopping
        if self.started:
            self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's
        """Stop the server; a second Ctrl-C ends the process. Its exit status is not the signal."""
        self._interrupts += sig == signal.SIGINT
        if self._interrupts > 1:
            self._cut_off("Ended before everything was undone.")
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, within the grace."""
        bound = threading.Timer(
            self._grace, self._cut_off, [f"Not everything was undone within {self._grace:g} s."]
        )
        bound.daemon = True
        bound.start()  # and not cancelled: threads may hold up the process after the server
        self._stopping.set()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=MOMENT)
        if running := len(self.server_state.tasks):
            what = "1 request" if running == 1 else f"{running} requests"
            Console().say(
                f"Stopping: {what} in progress. What {'it does' if running == 1 else 'they do'} not"
                f" finish in {self.config.timeout_graceful_shutdown} s is ended and undone, within"
                f" {self._grace:g} s in all. Ctrl-C ends it at once."
            )
        await super().shutdown(sockets)


def _cut_off(why: str) -> NoReturn:
    Console().say(why)
    os._exit(FailedError.status)
