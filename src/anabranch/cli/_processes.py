"""An application served by this process, or by several worker processes behind one port.

Workers are started, replaced when they die, and ended together. uvicorn has a supervisor, too, but
it polls each worker in turn, and notices a death or Ctrl-C only after a round of polling.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

import anyio
import uvicorn

from anabranch._foreign_text import printable
from anabranch._terminal.exits import CommandError, FailedError

__all__ = ["listen", "run_workers", "serve_app"]

logger: logging.Logger = logging.getLogger("anabranch.cli")

GRACE = 2
"""Seconds that open connections get when a server is stopped."""

PATIENCE = 10.0
"""Seconds within which a worker must end after it was asked to."""

SHORT_LIFE = 5.0
PAUSE = 1.0
"""Seconds to wait before replacing a worker that had a short life: the next may have one, too."""

CANNOT_START = 3
"""Exit status of a worker that would fail again in the same way."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on ``host`` (a name or an address) and ``port``; 0 for any.

    Raises:
        OSError: the port is in use, or there is no such host.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, port), family=family)
    # ``create_server`` leaves the protocol unspecified, and asyncio turns Nagle's algorithm off
    # only where it is TCP; with it, each reply would wait 40 ms for the previous one's ACK.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=made.detach())


def serve_app(app: Any, listener: socket.socket) -> None:  # noqa: ANN401 - as uvicorn takes it
    """Serve an application in this process until Ctrl-C or SIGTERM."""
    config = uvicorn.Config(
        app,
        log_config=None,  # its records go to our own handler
        log_level="warning",
        timeout_graceful_shutdown=GRACE,
        ws="none",
    )
    with suppress(KeyboardInterrupt):  # the person stopped it
        anyio.run(uvicorn.Server(config).serve, [listener])


def run_workers(make: Callable[[], Any], listener: socket.socket, number: int) -> None:
    """Serve the application in ``number`` processes until Ctrl-C or SIGTERM.

    ``make`` returns it; it is pickled, and called in each process.

    Raises:
        FailedError: a worker could not start.
    """
    workers = _Workers(make, listener, number)
    with _stop_signal() as stopped:
        try:
            workers.supervise(stopped)
        finally:
            workers.end()


class _Workers:
    """The worker processes, and when each was started."""

    def __init__(self, make: Callable[[], Any], listener: socket.socket, number: int) -> None:
        self._make = make
        self._listener = listener
        self._number = number
        self._started: dict[BaseProcess, float] = {}
        self._next_at = 0.0

    def supervise(self, stopped: socket.socket) -> None:
        """Keep the number of workers constant until ``stopped`` is readable."""
        while True:
            missing = self._number - len(self._started)
            pause = max(0.0, self._next_at - time.monotonic()) if missing else None
            if missing and not pause:
                self._start()
                pause = 0.0
            ended = wait([stopped, *(process.sentinel for process in self._started)], pause)
            if stopped in ended:
                return
            self._reap()

    def end(self) -> None:
        for process in self._started:
            process.terminate()
        until = time.monotonic() + PATIENCE
        for process in self._started:
            process.join(max(0.0, until - time.monotonic()))
            process.kill()
            process.join()

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would inherit threads and locks
        process = spawn.Process(target=_work, args=(self._make, self._listener))
        process.start()
        self._started[process] = time.monotonic()

    def _reap(self) -> None:
        now = time.monotonic()
        for process in [known for known in self._started if not known.is_alive()]:
            started = self._started.pop(process)
            if process.exitcode == CANNOT_START:
                raise FailedError("A worker could not start; the reason is above.")
            logger.warning("worker %s has died (%s); replaced", process.pid, process.exitcode)
            if now - started < SHORT_LIFE:
                self._next_at = now + PAUSE


@contextmanager
def _stop_signal() -> Generator[socket.socket]:
    """Yield a socket that becomes readable on Ctrl-C or SIGTERM."""
    reading, writing = socket.socketpair()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        writing.send(b"\0")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, on_signal) for number in numbers]
    with reading, writing:
        try:
            yield reading
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def _work(make: Callable[[], Any], listener: socket.socket) -> None:
    """Make the application and serve it: the main function of a worker."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        # Otherwise the workers of a parent that was killed would hold the port for ever.
        threading.Thread(target=_terminate_after, args=(parent,), daemon=True).start()
    try:
        app = make()
    except CommandError as error:
        sys.stderr.write(printable(f"anabranch: {error}\n"))
        sys.exit(CANNOT_START)
    except KeyboardInterrupt:  # Ctrl-C reaches every process of a terminal
        return
    serve_app(app, listener)


def _terminate_after(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
