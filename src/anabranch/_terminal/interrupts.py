"""Handles Ctrl-C, SIGTERM and a closed terminal: the first cancels the work, a second kills.

A prompt reads Ctrl-C as a key, and :func:`interrupt` turns the key into the signal. Ctrl-C may end
a part of a program, such as a turn of a chat; other signals end the whole program.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn, TypeAlias, TypeVar, TypeVarTuple, Unpack

import anyio

from anabranch._terminal.exits import LeftError

if sys.platform != "win32":
    import termios

Handler: TypeAlias = Callable[[int, FrameType | None], object]
T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

ENDING = [signal.SIGTERM] if sys.platform == "win32" else [signal.SIGTERM, signal.SIGHUP]
"""The signals that end a command in addition to Ctrl-C. A closed terminal sends SIGHUP."""

PATIENCE = 1.0
"""Seconds until the user learns that some work cannot be interrupted."""
STILL_RUNNING = (
    "anabranch: waiting for work that cannot be interrupted. Ctrl-C again kills the process.\n"
)
PLAIN = b"\x1b[?25h\x1b[?2004l"
"""The codes that show the cursor and end bracketed paste."""


def run_command(work: Callable[[Unpack[Arguments]], Awaitable[T]], *arguments: *Arguments) -> T:
    """Run ``work``; raise ``LeftError`` after a signal. Only the main thread gets signals."""

    async def main() -> T:
        # Nohup and host programs set handlers, which stay.
        default = [each for each in ENDING if signal.getsignal(each) is signal.SIG_DFL]
        numbers = [signal.SIGINT, *default]
        with anyio.CancelScope() as scope, on_interrupt(scope.cancel, numbers) as interrupts:
            try:
                result = await work(*arguments)
            except Exception:
                if not scope.cancel_called:
                    raise
            else:
                if not scope.cancel_called:
                    return result
        for number in numbers:
            signal.signal(number, interrupts.kill)
        raise LeftError(interrupts.received or signal.SIGINT)

    return anyio.run(main)


@contextmanager
def on_interrupt(
    act: Callable[[], object], numbers: Sequence[signal.Signals] = (signal.SIGINT,)
) -> Generator[Interrupts]:
    """Call ``act`` in the event loop on the first signal within the block; a second kills.

    Only the main thread receives signals: in another thread, the block installs nothing.
    """
    interrupts = Interrupts(act)
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    with woken_by_signals(asyncio.get_running_loop()), handled_by(interrupts.first, numbers):
        try:
            yield interrupts
        finally:
            interrupts.close()


@contextmanager
def handled_by(handler: Handler, numbers: Sequence[signal.Signals]) -> Generator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


class Interrupts:
    def __init__(self, act: Callable[[], object]) -> None:
        self.received: int | None = None
        self._act = act
        self._loop = asyncio.get_running_loop()
        self._restore = _terminal_modes()
        self._reminder: asyncio.TimerHandle | None = None

    def first(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            self.kill(number, frame)
        self.received = number
        self._loop.call_soon_threadsafe(self._begin)

    def kill(self, number: int, frame: FrameType | None) -> NoReturn:
        del frame
        self._restore()
        os._exit(LeftError(number).status)  # an exception would wait for threads

    def close(self) -> None:
        if self._reminder is not None:
            self._reminder.cancel()

    def _begin(self) -> None:
        self._act()
        self._reminder = self._loop.call_later(PATIENCE, _say_still_running)


def _say_still_running() -> None:
    with suppress(OSError):  # the terminal closed
        sys.stderr.write(STILL_RUNNING)


@contextmanager
def woken_by_signals(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """Inside the block, let a signal wake the event loop, which then runs the signal's handler.

    Python runs a handler between two instructions of the main thread. Another thread may receive the
    signal, or the signal may arrive just before the loop waits. Without this, the handler would run
    after the wait.
    """
    if sys.platform == "win32":  # this loop wakes on signals
        yield
        return
    received, sent = socket.socketpair()
    with received, sent:
        received.settimeout(0)
        sent.settimeout(0)
        loop.add_reader(received, received.recv, 4096)
        before = signal.set_wakeup_fd(sent.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(received)


@contextmanager
def signals_restored() -> Generator[None]:
    """Restore the handling of signals at the end of the block, which runs a prompt.

    prompt_toolkit handles a resized terminal by the event loop. At its end, the loop resets the
    signal's handler, and the descriptor by which :func:`woken_by_signals` wakes the loop.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    resized, wakeup = signal.getsignal(signal.SIGWINCH), signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    try:
        yield
    finally:
        if resized is not None:  # not set by Python
            signal.signal(signal.SIGWINCH, resized)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def _terminal_modes() -> Callable[[], None]:
    if sys.platform == "win32" or not sys.stdin.isatty():
        return lambda: None
    terminal = sys.stdin.fileno()
    modes = termios.tcgetattr(terminal)

    def restore() -> None:
        with suppress(OSError, termios.error):  # the terminal closed
            termios.tcsetattr(terminal, termios.TCSANOW, modes)
            os.write(terminal, PLAIN)

    return restore
