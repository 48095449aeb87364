"""A process of its own, for checks of what several of them do to one store.

Owns how such a process is started, told to go, listened to, and ended.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any, TypeAlias, TypeVar

import anyio
import anyio.to_thread

__all__ = ["Child", "Work"]

S = TypeVar("S")
Work: TypeAlias = Callable[[Callable[[], S], str, Callable[[Any], None]], Awaitable[None]]
"""Is given the way to open a store, its own name, and whom to tell."""

_SPAWN = multiprocessing.get_context("spawn")  # a forked child would share the parent's threads


class Child:
    """A process that opens a store, works once told to go, and tells what it sees."""

    def __init__(self, work: Work[S], open_store: Callable[[], S], name: str) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_live, args=(theirs, work, open_store, name))
        self._process.start()
        theirs.close()  # the end of the process is then the end of the pipe

    async def receive(self) -> Any:  # noqa: ANN401  # as the work tells it
        """Return what the process tells next.

        Raises:
            EOFError: it has ended.
        """
        return await anyio.to_thread.run_sync(self._pipe.recv, abandon_on_cancel=True)

    async def ready(self) -> None:
        """Wait until the process has imported what it needs."""
        await self.receive()

    def go(self) -> None:
        """Let it work."""
        self._pipe.send("go")

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        self._process.kill()

    async def end(self) -> None:
        """Wait for its end and give up what belongs to it."""
        await anyio.to_thread.run_sync(self._process.join)
        self._process.close()
        self._pipe.close()


def _live(
    pipe: Connection[Any, Any], work: Work[S], open_store: Callable[[], S], name: str
) -> None:
    pipe.send("ready")
    pipe.recv()
    anyio.run(work, open_store, name, pipe.send)
