"""Ends every test that hangs, and shows the stacks of its processes.

pytest-timeout raises an exception in the main thread. A callback of the event loop or a broad
``except`` can lose this exception, and the fixtures of a failed test have no limit. The alarm
therefore first shows the threads and tasks of this process. It then aborts the processes that the
test has started, and each of these writes its stacks. A second limit, held by a thread of
faulthandler, ends the process itself.

A test that waits for a processor does not hang: such waits put off the alarm.
"""

import asyncio
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.preloaded import SHARED

GRACE = 20
"""Seconds from the alarm, or a failure, within which the test's fixtures must end."""

MOST = 10
"""After this many timeouts, a test counts as hanging, however long its processes wait for a processor."""

LOOKS = 60
"""Number of times per timeout that the waits of a test's threads are read, since some threads end early."""


class Hangs:
    """A pytest plugin for each process that runs tests. Create it while the process has its
    original stderr.
    """

    def __init__(self) -> None:
        self._stderr = os.dup((sys.__stderr__ or sys.stderr).fileno())
        os.environ["PYTHONFAULTHANDLER"] = "1"  # a Python process that is aborted shows its stacks

    @pytest.hookimpl(wrapper=True)
    def pytest_timeout_set_timer(
        self, item: pytest.Item, settings: Any
    ) -> Generator[None, object, object]:
        """Show the stacks when the alarm of ``item`` rings; end this process if the test still runs
        afterwards.
        """
        done = yield
        raises = signal.getsignal(signal.SIGALRM)
        limit: float = settings.timeout
        if settings.method == "signal" and callable(raises):
            began, waits = time.monotonic(), Waits()

            def ring(number: int, frame: FrameType | None) -> None:
                left = began + min(limit + waits.seconds(), MOST * limit) - time.monotonic()
                if left > 0:
                    self._end_after(left + GRACE)
                else:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    self._show(item)
                    raises(number, frame)

            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, limit / LOOKS, limit / LOOKS)
        self._end_after(limit + GRACE)
        return done

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector) -> None:
        """Limit the time of a failed test's fixtures, since pytest-timeout has removed its limit by then."""
        if isinstance(node, pytest.Item):
            self._end_after(GRACE)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _end_after(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stderr)

    def _show(self, item: pytest.Item) -> None:
        """Write the stacks of this process's threads and tasks, and abort its descendants."""
        with os.fdopen(os.dup(self._stderr), "w") as file:
            print(f"\n{item.nodeid} hangs:", file=file, flush=True)
            faulthandler.dump_traceback(file, all_threads=True)
            with suppress(RuntimeError):  # raises if no event loop runs
                for task in asyncio.all_tasks():
                    task.print_stack(file=file)
            for process in _descendants(os.getpid()):
                if process in SHARED:  # keep the process from which the next tests start theirs
                    continue
                words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
                command = b" ".join(words).decode(errors="replace")
                print(f"\nIts process {process}, {command}", file=file, flush=True)
                os.kill(process, signal.SIGABRT)


class Waits:
    """The time that the threads of this process and of its new children wait for a processor, from now on.

    ``read`` returns the seconds that each thread has waited since its start.
    """

    def __init__(self, read: Callable[[], Mapping[Path, float]] | None = None) -> None:
        self._read = read or _waits_of_threads
        self._waited: dict[Path, float] = {}
        self._before = 0.0
        self._before = self.seconds()

    def seconds(self) -> float:
        """Return how long all threads waited in total, including threads that have ended."""
        self._waited.update(self._read())
        return sum(self._waited.values()) - self._before


def _waits_of_threads() -> Mapping[Path, float]:
    """Return the seconds that each thread waited for a processor, where the system counts them (Linux)."""
    waited: dict[Path, float] = {}
    for process in {os.getpid(), *_descendants(os.getpid())}:
        for listed in _threads_of(process):
            with suppress(OSError):  # the thread has ended
                waited[listed] = int((listed / "schedstat").read_text().split()[1]) / 1e9
    return waited


def _descendants(parent: int) -> Iterator[int]:
    """Yield the descendants of a process, where the system lists them (Linux)."""
    for listed in _threads_of(parent):
        children: list[str] = []
        with suppress(OSError):  # the thread has ended
            children = (listed / "children").read_text().split()
        for child in children:
            yield from _descendants(int(child))
            yield int(child)


def _threads_of(process: int) -> list[Path]:
    with suppress(OSError):  # the process has ended
        return list(Path(f"/proc/{process}/task").iterdir())
    return []
