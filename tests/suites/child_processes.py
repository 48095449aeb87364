"""Runs work on one store in several threads or processes at the same time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, TypeAlias, TypeVar

import anyio
import anyio.to_thread

S = TypeVar("S")
R = TypeVar("R")
Work: TypeAlias = Callable[[Callable[[], S], str, Callable[[Any], None]], Awaitable[None]]
"""Receives the function that opens a store, a name, and a function that reports a value."""

# A process forked from this one would share its threads. Children therefore come from a fork
# server, which imports their modules once. On a system without fork servers, each child imports the
# modules.
_PROCESSES = (
    multiprocessing.get_context("forkserver")
    if "forkserver" in multiprocessing.get_all_start_methods()
    else multiprocessing.get_context("spawn")
)
_PRELOADED = [
    *(f"tests.suites.shared_{each}_checks" for each in ("call_store", "run_event", "tree_store")),
    *(f"anabranch.stores.{each}" for each in ("_calls", "_run_events", "_trees")),
]


class Child:
    """A process that opens a store, starts its work when :meth:`go` is called, and reports values."""

    def __init__(self, work: Work[S], open_store: Callable[[], S], name: str) -> None:
        _PROCESSES.set_forkserver_preload(_PRELOADED)
        self._pipe, theirs = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(target=_live, args=(theirs, work, open_store, name))
        self._process.start()
        theirs.close()  # so that the pipe ends when the process ends

    async def receive(self) -> Any:  # whatever the work reports
        """the type depends on the work"""
        return await anyio.to_thread.run_sync(self._pipe.recv, abandon_on_cancel=True)

    async def ready(self) -> None:
        await self.receive()

    def go(self) -> None:
        self._pipe.send("go")

    def kill(self) -> None:
        self._process.kill()

    async def end(self) -> None:
        await anyio.to_thread.run_sync(self._process.join)
        self._process.close()
        self._pipe.close()


def _live(
    pipe: Connection[Any, Any], work: Work[S], open_store: Callable[[], S], name: str
) -> None:
    pipe.send("ready")
    pipe.recv()
    anyio.run(work, open_store, name, pipe.send)


async def in_threads(
    work: Callable[[Callable[[], S], str], Awaitable[R]],
    open_store: Callable[[], S],
    names: Sequence[str],
) -> list[R]:
    """Run ``work`` once for each name, in threads with separate event loops."""
    with ThreadPoolExecutor(len(names)) as threads:
        running = [threads.submit(anyio.run, work, open_store, name) for name in names]
        return [await anyio.to_thread.run_sync(one.result) for one in running]


async def in_processes(
    work: Callable[[Callable[[], S], str], Awaitable[R]],
    open_store: Callable[[], S],
    names: Sequence[str],
) -> list[R]:
    """Run ``work`` once for each name, in processes; all arguments must be picklable."""
    processes = [Child(partial(_work_and_report, work), open_store, name) for name in names]
    for process in processes:
        await process.ready()
    for process in processes:
        process.go()
    done = [await process.receive() for process in processes]
    for process in processes:
        await process.end()
    return done


async def killed_in_mid_work(
    work: Work[S], open_store: Callable[[], S], name: str, *, after: int
) -> int:
    """Kill a process after it has reported ``after`` or a later number; return its last number."""
    process = Child(work, open_store, name)
    await process.ready()
    process.go()
    reported = -1
    while reported < after:
        reported = await process.receive()
    process.kill()
    with suppress(EOFError):
        while True:
            reported = await process.receive()
    await process.end()
    return reported


async def _work_and_report(
    work: Callable[[Callable[[], S], str], Awaitable[R]],
    open_store: Callable[[], S],
    name: str,
    report: Callable[[Any], None],
) -> None:
    report(await work(open_store, name))
