"""Ctrl-C while something runs that is worth ending properly.

Owns the signal's handler for that time. A second Ctrl-C does what it does everywhere, in case that
the first has not been enough.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

__all__ = ["on_interrupt"]


@contextmanager
def on_interrupt(act: Callable[[], object]) -> Generator[None]:
    """Have the first Ctrl-C call ``act`` in the running event loop; only in the main thread."""
    loop = asyncio.get_running_loop()
    pressed = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed and callable(before):
            before(number, frame)
        pressed = True
        loop.call_soon_threadsafe(act)  # which wakes the loop, wherever it waits

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
