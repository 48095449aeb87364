"""Undoes running calls before an unhandled signal, such as SIGTERM, ends the process.

The watch takes only signals without a handler, so that it leaves a host alone that stops by itself
(uvicorn). Over stdio, SIGTERM has no handler, and no cancellation reaches the thread that reads
stdin. There the signal ends the process as soon as its calls have been undone.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from typing import Any

Act = Callable[[], Coroutine[Any, Any, None]]


@contextmanager
def before_termination(act: Act) -> Generator[None]:
    """Within the block, await ``act`` before a signal ends the process; a second signal ends it."""
    loop = asyncio.get_running_loop()
    watch = _WATCHES.get(loop) or _Watch(loop)
    watch.acts.append(act)
    try:
        yield
    finally:
        watch.acts.remove(act)
        if not watch.acts:
            watch.close()


class _Watch:
    """The watched signals of one event loop, and the actions to await first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.acts: list[Act] = []
        self._loop = loop
        self._numbers = [each for each in (signal.SIGINT, signal.SIGTERM) if self._take(each)]
        self._ending: asyncio.Task[None] | None = None
        _WATCHES[loop] = self

    def close(self) -> None:
        del _WATCHES[self._loop]
        self._release()

    def _take(self, number: signal.Signals) -> bool:
        if threading.current_thread() is not threading.main_thread():
            return False
        if signal.getsignal(number) is not signal.SIG_DFL:
            return False
        with suppress(NotImplementedError):  # event loops on Windows
            self._loop.add_signal_handler(number, self._begin, number)
            return True
        return False

    def _release(self) -> None:
        for number in self._numbers:
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self._numbers = []

    def _begin(self, number: signal.Signals) -> None:
        self._release()
        self._ending = self._loop.create_task(self._end(number))

    async def _end(self, number: signal.Signals) -> None:
        await asyncio.gather(*(act() for act in self.acts), return_exceptions=True)
        signal.raise_signal(number)


_WATCHES: dict[asyncio.AbstractEventLoop, _Watch] = {}
