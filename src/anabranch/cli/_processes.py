"""An application served by several worker processes behind one port.

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
from contextlib import AbstractAsyncContextManager, contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, TypeAlias

from anabranch._terminal.exits import CommandError, FailedError
from anabranch._text import printable
from anabranch.cli._http_connections import Bounds
from anabranch.cli._http_server import serve_app

logger: logging.Logger = logging.getLogger("anabranch.cli")

MakeApp: TypeAlias = Callable[[], tuple[Any, AbstractAsyncContextManager[object]]]

PATIENCE = 2.0
"""Seconds, beyond the grace, within which a worker must end after it was asked to."""

SPAWN = multiprocessing.get_context("spawn")
"""How workers are started: a fork would inherit threads and locks."""

SHORT_LIFE = 5.0
PAUSE = 1.0
"""Seconds to wait before replacing a worker that had a short life: the next may have one, too."""

CANNOT_START = 3
"""Exit status of a worker that would fail again in the same way."""


def run_workers(
    make: MakeApp,
    listener: socket.socket,
    number: int,
    bounds: Bounds,
    *,
    on_started: Callable[[], object],
) -> None:
    """Serve the application in ``number`` processes until Ctrl-C or SIGTERM.

    Args:
        make: returns it, and what is entered around it; is pickled, and called in each process.
        listener: where it is reached.
        number: of processes.
        bounds: what each of them spends on its clients.
        on_started: called when the first of them serves.

    Raises:
        FailedError: a worker could not start.
    """
    workers = _Workers(make, listener, number, bounds)
    with _stop_signal() as stopped:
        try:
            workers.supervise(stopped, on_started)
        finally:
            workers.end(stopped)


class _Workers:
    """The worker processes, and when each was started."""

    def __init__(self, make: MakeApp, listener: socket.socket, number: int, bounds: Bounds) -> None:
        self._make = make
        self._listener = listener
        self._number = number
        self._bounds = bounds
        self._starting, self._report = SPAWN.Pipe(duplex=False)
        self._started: dict[BaseProcess, float] = {}
        self._next_at = 0.0

    def supervise(self, stopped: socket.socket, on_started: Callable[[], object]) -> None:
        """Keep the number of workers constant until ``stopped`` is readable."""
        watched: list[Any] = [stopped, self._starting]
        while True:
            missing = self._number - len(self._started)
            pause = max(0.0, self._next_at - time.monotonic()) if missing else None
            if missing and not pause:
                self._start()
                pause = 0.0
            ended = wait([*watched, *(process.sentinel for process in self._started)], pause)
            if stopped in ended:
                stopped.recv(1)
                return
            if self._starting in ended:
                watched.remove(self._starting)
                on_started()
            self._reap()

    def end(self, stopped: socket.socket) -> None:
        """End all workers, at once if ``stopped`` becomes readable again."""
        for process in self._started:
            process.terminate()
        until = time.monotonic() + self._bounds.grace + PATIENCE
        running = {process.sentinel for process in self._started}
        while running and stopped not in (
            ended := wait([stopped, *running], until - time.monotonic())
        ):
            if not ended:
                break
            running.difference_update(ended)
        for process in self._started:
            process.kill()
            process.join()

    def _start(self) -> None:
        process = SPAWN.Process(
            target=_work, args=(self._make, self._listener, self._bounds, self._report)
        )
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
    """Yield a socket that becomes readable on Ctrl-C or SIGTERM.

    The interpreter writes to it as the signal arrives: a handler runs in Python, and would wait for
    the end of a wait that has just begun.
    """
    reading, writing = socket.socketpair()
    writing.settimeout(0)

    def heeded(_number: int, _frame: FrameType | None) -> None:
        """A signal that has no handler is not written."""

    numbers = (signal.SIGINT, signal.SIGTERM)
    with reading, writing:
        woken = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        before = [signal.signal(number, heeded) for number in numbers]
        try:
            yield reading
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken)


def _work(make: MakeApp, listener: socket.socket, bounds: Bounds, report: Connection) -> None:
    """Make the application and serve it: the main function of a worker."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        # Otherwise the workers of a parent that was killed would hold the port for ever.
        threading.Thread(target=_terminate_after, args=(parent,), daemon=True).start()
    try:
        app, around = make()
    except CommandError as error:
        sys.stderr.write(printable(f"anabranch: {error}\n"))
        sys.exit(CANNOT_START)
    except KeyboardInterrupt:  # Ctrl-C reaches every process of a terminal
        return
    serve_app(app, listener, bounds, on_started=lambda: report.send(None), around=around)


def _terminate_after(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
