"""uvicorn as the commands run it, with its limits, in this process or in several workers."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

import anyio
import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from anabranch._terminal import FailedError
from anabranch.cli._http_lifetime import SIGNALS, Lifetime, drain
from anabranch.mcp import GRACE

HEADROOM: Final = 16
"""Health checks that a server answers at the same time, in addition to all other requests."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one process of a server.

    Attributes:
        concurrency: requests in progress at the same time.
        grace: seconds in which calls are ended and undone when the server is stopped.
        access_log: whether each request is logged.
    """

    concurrency: int
    grace: float = GRACE
    access_log: bool = False


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on ``host`` (a name or an address) and ``port``; 0 for any.

    Raises:
        OSError: the port is in use, or the host is not of this machine (``gaierror``: is unknown).
        ValueError: the host is no name.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    socket.getaddrinfo(host, port, family)  # its error becomes another in create_server
    made = socket.create_server((host, port), family=family)
    # Connections inherit it. With Nagle's algorithm, each reply waits 40 ms for the previous one's ACK.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def configure(app: Any, bounds: Bounds, workers: int = 1) -> uvicorn.Config:  # noqa: ANN401 - as uvicorn takes it
    """Return uvicorn's configuration of a server; several ``workers`` unpickle ``app``."""
    levels = {
        "uvicorn.error": {"level": "WARNING"},
        "uvicorn.access": {"level": "INFO" if bounds.access_log else "WARNING"},
    }
    return uvicorn.Config(
        app,
        workers=workers,
        http="h11",
        loop="asyncio",
        ws="none",
        lifespan="on",
        # The middleware of shares refuses requests first, and leaves health checks and answers in.
        limit_concurrency=bounds.concurrency + bounds.concurrency // 2 + HEADROOM,
        backlog=128,
        timeout_keep_alive=10,
        h11_max_incomplete_event_size=2**14,
        timeout_graceful_shutdown=drain(bounds.grace),
        log_config={"version": 1, "incremental": True, "loggers": levels},
    )


def serve_app(
    app: ASGIApp,
    listener: socket.socket,
    bounds: Bounds,
    *,
    on_started: Callable[[], object],
    around: AbstractAsyncContextManager[object] | None = None,
) -> None:
    """Serve an application in this process until Ctrl-C or SIGTERM.

    Args:
        app: the application.
        listener: the socket on which clients reach it.
        bounds: its limits.
        on_started: called when it serves.
        around: is entered before it starts, and left when it has ended.

    Raises:
        FailedError: the application did not start.
        CommandError: ``around`` raised it.
    """
    lifetime = Lifetime(app, bounds.grace, on_started=on_started)

    async def serve() -> None:
        async with around or nullcontext():
            with _signals_ignored():  # after its end, uvicorn raises the signal that has stopped it
                await uvicorn.Server(configure(lifetime, bounds)).serve([listener])

    try:
        anyio.run(serve)
    except SystemExit as error:
        raise FailedError("The server could not start; the reason is above.") from error


def serve_workers(
    make: Callable[[], ASGIApp], listener: socket.socket, number: int, bounds: Bounds
) -> None:
    """Serve an application in ``number`` processes until Ctrl-C or SIGTERM.

    Args:
        make: returns the application; is pickled, and called in each process.
        listener: the socket on which clients reach it.
        number: of processes.
        bounds: the limits of each of them.

    Raises:
        FailedError: a worker could not start.
    """
    supervisor = Multiprocess(configure(_Made(make), bounds, number), [listener])
    logging.getLogger("uvicorn.error").setLevel(
        logging.INFO
    )  # it says there that a worker has died
    supervisor.run()
    if any(each.exitcode == STARTUP_FAILURE for each in supervisor.processes):
        raise FailedError("A worker could not start; the reason is above.")


class _Made:
    """Pickles as a call of ``make``, so that a worker has the application before its event loop runs.

    uvicorn calls a factory inside the loop, where targets could not run one of their own.
    """

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make

    def __reduce__(self) -> tuple[Callable[[], ASGIApp], tuple[()]]:
        return self._make, ()


@contextmanager
def _signals_ignored() -> Generator[None]:
    def ignore(_number: int, _frame: FrameType | None) -> None:
        """Do nothing; the processes that this one starts do not inherit that, as they would SIG_IGN."""

    before = [signal.signal(number, ignore) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
