"""A handler for Ctrl-C while something runs that should be ended properly.

A second Ctrl-C does what it does everywhere, in case the first was not enough.
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
    """Within the block, the first Ctrl-C calls ``act`` in the running event loop.

    To be used in the main thread only, as signal handlers are. The handler that was installed
    before is restored at the end.
    """
    loop = asyncio.get_running_loop()
    pressed = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed and callable(before):
            before(number, frame)
        pressed = True
        loop.call_soon_threadsafe(act)  # wakes the loop, whatever it waits for

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
