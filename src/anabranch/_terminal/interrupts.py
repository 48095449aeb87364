"""Ctrl-C, SIGTERM and a closed terminal: the first cancels what runs, a second one kills.

A prompt reads the terminal itself, where Ctrl-C is a key; :func:`interrupt` makes it the signal that
it is elsewhere, so that there is one way out of a form, a reply and a running tool alike. Ctrl-C may
end a part of a program (a turn of a chat); the other signals end all of it, in the same way.
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
from typing import NoReturn, TypeVar, TypeVarTuple, Unpack

import anyio

from anabranch._terminal.exits import LeftError

if sys.platform != "win32":
    import termios

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

ENDING = [signal.SIGTERM] if sys.platform == "win32" else [signal.SIGTERM, signal.SIGHUP]
"""The signals beside Ctrl-C that end a command. The system sends SIGHUP when a terminal is closed."""

PATIENCE = 1.0
"""Seconds after which the person is informed that something cannot be cut short."""
STILL_RUNNING = "anabranch: waiting for what cannot be cut short. Ctrl-C again ends it at once.\n"
PLAIN = b"\x1b[?25h\x1b[?2004l"
"""Shows the cursor, and ends bracketed paste."""


def run_command(work: Callable[[Unpack[Arguments]], Awaitable[T]], *arguments: *Arguments) -> T:
    """Return what ``work`` returns, run as by ``anyio.run``; a signal that ends commands cancels it.

    In another thread than the main one, which alone receives signals, nothing cancels it.

    Raises:
        LeftError: if Ctrl-C was pressed, or another such signal has come. From then on, a further
            one kills, also while threads are waited for at the end of the program.
    """

    async def main() -> T:
        numbers = [signal.SIGINT, *filter(_is_default, ENDING)]
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
    """Within the block, the first Ctrl-C calls ``act`` in the running event loop, a second kills.

    So does each other signal in ``numbers``. The handlers that were installed before are restored at
    the end. Only the main thread receives signals: in another, nothing is installed.
    """
    interrupts = Interrupts(act)
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    with woken_by_signals(asyncio.get_running_loop()):
        before = {number: signal.signal(number, interrupts.first) for number in numbers}
        try:
            yield interrupts
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            interrupts.close()


class Interrupts:
    """The handlers of the signals that end something; ``received`` is the first such signal."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.received: int | None = None
        self._act = act
        self._loop = asyncio.get_running_loop()
        self._restore = _terminal_modes()
        self._reminder: asyncio.TimerHandle | None = None

    def first(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: the first one begins the end."""
        if self.received is not None:
            self.kill(number, frame)
        self.received = number
        self._loop.call_soon_threadsafe(self._begin)

    def kill(self, number: int, frame: FrameType | None) -> NoReturn:
        """End the process at once, and leave the terminal as it was."""
        del frame
        self._restore()
        os._exit(LeftError(number).status)  # an exception would wait for threads

    def close(self) -> None:
        """Say no more that something cannot be cut short."""
        if self._reminder is not None:
            self._reminder.cancel()

    def _begin(self) -> None:
        self._act()
        self._reminder = self._loop.call_later(PATIENCE, _say_still_running)


def _say_still_running() -> None:
    with suppress(OSError):  # the terminal is closed
        sys.stderr.write(STILL_RUNNING)


def _is_default(number: signal.Signals) -> bool:
    """Return whether a signal would end the process: nohup, or a host of this library, has not said more."""
    return signal.getsignal(number) is signal.SIG_DFL


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
        with suppress(OSError, termios.error):  # the terminal is closed
            termios.tcsetattr(terminal, termios.TCSANOW, modes)
            os.write(terminal, PLAIN)

    return restore
