"""Runs and stops uvicorn for the commands, in this process or in several worker processes.

uvicorn tells an application of its stop only after the last request, and sets no limit on the time
after that, since a thread cannot be cancelled. So this module handles the signals as well.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

import anyio
import uvicorn
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from anabranch._aio import STOPPING
from anabranch._terminal import Console, FailedError, handled_by
from anabranch.cli._output import counted, cut_off, cut_off_after
from anabranch.mcp import GRACE

logger: logging.Logger = logging.getLogger("anabranch.cli")

DRAIN: Final = 2
"""Seconds of the grace for which requests in progress continue when a server is stopped."""

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def drain(grace: float) -> int:
    return min(DRAIN, int(grace / 2))


class Lifetime:
    """ASGI middleware that tells an application when its server stops, within ``around``.

    The process ends ``grace`` seconds after the signal at the latest, by ``cut_off`` if need be.
    """

    def __init__(
        self,
        app: ASGIApp,
        grace: float = GRACE,
        *,
        around: AbstractAsyncContextManager[object] | None = None,
        on_started: Callable[[], object] = lambda: None,
        cut_off: Callable[[str], object] = cut_off,
    ) -> None:
        self._app = app
        self._grace = grace
        self._around = around or nullcontext()
        self._on_started = on_started
        self._cut_off = cut_off
        self._running = 0
        self._stopping = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def stop(self) -> None:
        if self._stopping.is_set():
            return
        self._stopping.set()
        why = f"Not everything was undone within {self._grace:g} s."
        # Not cancelled: threads may delay the process after the server's end.
        cut_off_after(self._grace, why, self._cut_off)
        # By then, streams of events have ended.
        asyncio.get_running_loop().call_later(0.1, self._report)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"][STOPPING] = self._stopping

        async def reported(message: Message) -> None:
            await send(message)
            if message["type"] == "lifespan.startup.complete":
                self._on_started()

        with self._signals_heard():
            async with self._around:
                await self._app(scope, receive, reported)

    @contextmanager
    def _signals_heard(self) -> Generator[None]:
        """In the block, stop the server at a signal, and the process at a second Ctrl-C."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in SIGNALS}
        loop, interrupts = asyncio.get_running_loop(), 0

        def heard(number: int, frame: FrameType | None) -> None:
            nonlocal interrupts
            interrupts += number == signal.SIGINT
            if interrupts > 1:
                self._cut_off("Ended before everything was undone.")
            loop.call_soon_threadsafe(self.stop)
            if callable(handler := before[signal.Signals(number)]):
                handler(number, frame)

        with handled_by(heard, SIGNALS):
            yield

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun, complete = False, False

        async def sent(message: Message) -> None:
            nonlocal begun, complete
            begun = True
            complete = message["type"] == "http.response.body" and not message.get("more_body")
            await send(message)

        self._running += 1
        try:
            await self._app(scope, receive, sent)
        except ClientDisconnect:
            logger.debug("a client has left in the middle of its request")
        except asyncio.CancelledError:  # uvicorn cancels requests when it stops
            if not begun:
                headers = {"Retry-After": "1", "Connection": "close"}
                text = "The server is stopping. Send the request again.\n"
                await PlainTextResponse(text, 503, headers)(scope, receive, send)
            elif not complete:
                await send({"type": "http.response.body"})
        finally:
            self._running -= 1

    def _report(self) -> None:
        if not self._running:
            return
        what = counted(self._running, "request")
        Console().say(
            f"Stopping: {what} in progress. After {drain(self._grace)} s, the server ends and undoes"
            f" the rest, within {self._grace:g} s in all. Ctrl-C ends the process immediately."
        )


HEADROOM: Final = 16
"""Health checks that a server answers at the same time, in addition to all other requests."""
STARTING: Final = 20
"""Seconds in which a worker imports the tools; uvicorn kills and replaces a worker that takes longer.

As long, uvicorn may wait for a sign of a worker that has just died.
"""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a process: requests in progress, and seconds for ending calls."""

    concurrency: int
    grace: float = GRACE
    access_log: bool = False


def configure(app: Any, bounds: Bounds, workers: int = 1) -> uvicorn.Config:  # noqa: ANN401 - as uvicorn takes it
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
        timeout_worker_healthcheck=STARTING,
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
    lifetime = Lifetime(app, bounds.grace, on_started=on_started)

    async def serve() -> None:
        async with around or nullcontext():
            with handled_by(_ignore, SIGNALS):  # uvicorn raises the signal again after its end
                await uvicorn.Server(configure(lifetime, bounds)).serve([listener])

    try:
        anyio.run(serve)
    except SystemExit as error:
        raise FailedError("The server could not start; the reason is above.") from error


def serve_workers(
    make: Callable[[], ASGIApp], listener: socket.socket, number: int, bounds: Bounds
) -> None:
    supervisor = Multiprocess(configure(_Made(make), bounds, number), [listener])
    logging.getLogger("uvicorn.error").setLevel(
        logging.INFO
    )  # this logger reports a worker's death
    supervisor.run()
    if any(each.exitcode == STARTUP_FAILURE for each in supervisor.processes):
        raise FailedError("A worker could not start; the reason is above.")


class _Made:
    """Pickles as a call of ``make``: uvicorn calls a factory inside the event loop."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make

    def __reduce__(self) -> tuple[Callable[[], ASGIApp], tuple[()]]:
        return self._make, ()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Ignore a signal. Started processes inherit ``SIG_IGN``, but no handler such as this one."""
