"""Several processes behind one port.

Owns starting them, replacing one that dies, and ending them all together. What they serve is
``serve.py``'s business. uvicorn has a supervisor, too, but that one asks each worker in turn for
a sign of life, and hears of a death, or of Ctrl-C, only when it is done with asking.
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

from anabranch._terminal.exits import CommandError, FailedError

__all__ = ["listen", "run_workers", "serve_app"]

logger: logging.Logger = logging.getLogger("anabranch.cli")

GRACE = 2
"""Seconds that open connections get when a server is stopped."""

PATIENCE = 10.0
"""Seconds in which a worker that was told to end must have ended."""

SHORT_LIFE = 5.0
PAUSE = 1.0
"""Seconds to wait before a worker is replaced that had a short life: its successor may, too."""

CANNOT_START = 3
"""Exit status of a worker that would fail again in the same way."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at ``host`` (a name, or an address) and ``port``; 0 for any.

    Raises:
        OSError: the port is taken, or there is no such host.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.create_server((host, port), family=family)
    # Named as TCP, which ``create_server`` leaves open: asyncio turns Nagle's algorithm off for
    # no other, and each reply would wait for the acknowledgement of the one before, 40 ms.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=made.detach())


def serve_app(app: Any, listener: socket.socket) -> None:  # noqa: ANN401 - as uvicorn takes it
    """Serve an application in this process until Ctrl-C or SIGTERM."""
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=GRACE, ws="none")
    with suppress(KeyboardInterrupt):  # the person has stopped it, as they should
        anyio.run(uvicorn.Server(config).serve, [listener])


def run_workers(make: Callable[[], Any], listener: socket.socket, number: int) -> None:
    """Serve what ``make`` makes in ``number`` processes until Ctrl-C or SIGTERM.

    ``make`` is pickled, and called in each of them.

    Raises:
        FailedError: a worker could not start.
    """
    workers = _Workers(make, listener, number)
    with _told_to_stop() as stopped:
        try:
            workers.keep(stopped)
        finally:
            workers.end()


class _Workers:
    def __init__(self, make: Callable[[], Any], listener: socket.socket, number: int) -> None:
        self._make = make
        self._listener = listener
        self._number = number
        self._born: dict[BaseProcess, float] = {}
        self._next_at = 0.0

    def keep(self, stopped: socket.socket) -> None:
        """Have the right number of them until ``stopped`` can be read."""
        while True:
            missing = self._number - len(self._born)
            pause = max(0.0, self._next_at - time.monotonic()) if missing else None
            if missing and not pause:
                self._start()
                pause = 0.0
            ended = wait([stopped, *(process.sentinel for process in self._born)], pause)
            if stopped in ended:
                return
            self._bury()

    def end(self) -> None:
        for process in self._born:
            process.terminate()
        until = time.monotonic() + PATIENCE
        for process in self._born:
            process.join(max(0.0, until - time.monotonic()))
            process.kill()
            process.join()

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would inherit threads and locks
        process = spawn.Process(target=_work, args=(self._make, self._listener))
        process.start()
        self._born[process] = time.monotonic()

    def _bury(self) -> None:
        now = time.monotonic()
        for process in [known for known in self._born if not known.is_alive()]:
            born = self._born.pop(process)
            if process.exitcode == CANNOT_START:
                raise FailedError("A worker could not start; the reason stands above.")
            logger.warning("worker %s has died (%s); replaced", process.pid, process.exitcode)
            if now - born < SHORT_LIFE:
                self._next_at = now + PAUSE


@contextmanager
def _told_to_stop() -> Generator[socket.socket]:
    """Yield a socket that can be read once Ctrl-C or SIGTERM has come."""
    reading, writing = socket.socketpair()

    def tell(_number: int, _frame: FrameType | None) -> None:
        writing.send(b"\0")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, tell) for number in numbers]
    with reading, writing:
        try:
            yield reading
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def _work(make: Callable[[], Any], listener: socket.socket) -> None:
    """Serve, as the main function of a worker."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        # Otherwise workers of a parent that was killed would keep the port for ever.
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()
    try:
        app = make()
    except CommandError as error:
        sys.stderr.write(f"anabranch: {error}\n")
        sys.exit(CANNOT_START)
    except KeyboardInterrupt:  # Ctrl-C reaches every process of a terminal
        return
    serve_app(app, listener)


def _end_after(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
