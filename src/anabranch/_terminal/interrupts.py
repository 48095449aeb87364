"""Ctrl-C: the first press cancels what runs and restores the terminal, a second one kills.

A prompt reads the terminal itself, where Ctrl-C is a key; :func:`interrupt` makes it the signal that
it is elsewhere, so that there is one way out of a form, a reply and a running tool alike.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, TypeVar, TypeVarTuple, Unpack

import anyio

from anabranch._terminal.exits import LeftError

if sys.platform != "win32":
    import termios

__all__ = ["interrupt", "on_interrupt", "run_command", "woken_by_signals"]

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

PATIENCE = 1.0
"""Seconds after which the person is informed that something cannot be cut short."""
STILL_RUNNING = "anabranch: waiting for what cannot be cut short. Ctrl-C again ends it at once.\n"
PLAIN = b"\x1b[?25h\x1b[?2004l"
"""Shows the cursor, and ends bracketed paste."""


def run_command(work: Callable[[Unpack[Arguments]], Awaitable[T]], *arguments: *Arguments) -> T:
    """Return what ``work`` returns, run as by ``anyio.run``; Ctrl-C cancels it.

    In another thread than the main one, which alone receives signals, nothing cancels it.

    Raises:
        LeftError: Ctrl-C was pressed. From then on, a further press kills, also while threads are
            waited for at the end of the program.
    """

    async def main() -> T:
        with anyio.CancelScope() as scope, on_interrupt(scope.cancel) as kill:
            try:
                result = await work(*arguments)
            except Exception:
                if not scope.cancel_called:
                    raise
            else:
                if not scope.cancel_called:
                    return result
        signal.signal(signal.SIGINT, kill)
        raise LeftError

    return anyio.run(main)


@contextmanager
def on_interrupt(act: Callable[[], object]) -> Generator[Callable[..., object]]:
    """Within the block, the first Ctrl-C calls ``act`` in the running event loop, a second kills.

    The handler that was installed before is restored at the end. The value is a signal handler
    that kills. Only the main thread receives signals: in another, nothing is installed.
    """
    loop = asyncio.get_running_loop()
    restore = _terminal_modes()
    reminders: list[asyncio.TimerHandle] = []
    pressed = False

    def kill(number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        restore()
        os._exit(LeftError.status)  # an exception would wait for threads

    def first(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            kill(number, frame)
        pressed = True
        loop.call_soon_threadsafe(begin)

    def begin() -> None:
        act()
        reminders.append(loop.call_later(PATIENCE, sys.stderr.write, STILL_RUNNING))

    if threading.current_thread() is not threading.main_thread():
        yield kill
        return
    with woken_by_signals(loop):
        before = signal.signal(signal.SIGINT, first)
        try:
            yield kill
        finally:
            signal.signal(signal.SIGINT, before)
            for reminder in reminders:
                reminder.cancel()


@contextmanager
def woken_by_signals(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """Within the block, a signal ends the loop's waiting, so that its handler runs at once.

    Python runs a handler between two instructions of the main thread. A signal that another thread
    receives, or that arrives just before the loop begins to wait, would be handled after the wait.
    """
    if sys.platform == "win32":  # this loop does it by itself
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


def interrupt() -> None:
    """Do what Ctrl-C does where it is a signal."""
    signal.raise_signal(signal.SIGINT)


def _terminal_modes() -> Callable[[], None]:
    """Return a function that restores the terminal to how it is now."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        return lambda: None
    terminal = sys.stdin.fileno()
    modes = termios.tcgetattr(terminal)

    def restore() -> None:
        termios.tcsetattr(terminal, termios.TCSANOW, modes)
        os.write(terminal, PLAIN)

    return restore
