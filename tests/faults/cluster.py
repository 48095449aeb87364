"""A cluster of worker processes on separate ports, behind one proxy.

The cluster replaces a process that ends, and records how it ended. The proxy does not read the data
that passes through it. When one side closes its connection, the proxy closes the other.
"""

import asyncio
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from itertools import cycle
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from tests.faults.journey import Settings

ROOT = Path(__file__).parents[2]
PLAYED = ("tests.faults.errand", "tests.faults.journey")
"""The modules with the tools that the processes serve."""

for late in (
    "anabranch.stores._calls",
    "anabranch.stores._database",
    "psycopg",
    "rich.logging",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    "uvicorn.lifespan.on",
    "uvicorn.protocols.http.auto",
):
    import_module(late)  # otherwise every worker would load these modules again


def _have_a_process_to_fork() -> ForkServerContext:
    """Start a process that has loaded all modules and forks the workers, so that no worker imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *PLAYED])
    before = os.environ.get("PYTHONPATH")
    # The process does not inherit sys.path, and would load the installed package, not the tested
    # one.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return context


class Cluster:
    """Worker processes behind a proxy.

    Args:
        work: the main function of each process.
        settings: one element for each process.
        fronts: number of processes, from the first, to which the proxy leads.

    Attributes:
        killed: ids of the processes that were killed.
        ended: ids of the processes that ended in another way, with their exit status.
    """

    def __init__(
        self,
        work: Callable[[Settings, socket.socket], None],
        settings: Sequence[Settings],
        fronts: int,
    ) -> None:
        self.killed: set[int] = set()
        self.ended: dict[int, int | None] = {}
        self._work = work
        self._settings = settings
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in settings]
        ports = [listener.getsockname()[1] for listener in self._listeners[:fronts]]
        self._ports = cycle(ports)
        self._leading: set[asyncio.Task[None]] = set()
        self._running: dict[ForkServerProcess, int] = {}
        self._context = _have_a_process_to_fork()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[str]:
        """Run the processes within the block; yield the address of the proxy."""
        for place in range(len(self._settings)):
            self._start(place)
        proxy = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        finally:
            proxy.close()
            for leading in self._leading:
                leading.cancel()
            if self._leading:
                await asyncio.wait(self._leading)
            for process in list(self._running):
                self._forget(process)
                process.kill()
                process.join()
            for listener in self._listeners:
                listener.close()

    def pids(self, places: Collection[int] | None = None) -> list[int]:
        """Return the ids of the running processes, or of the processes at the given places."""
        return [
            process.pid
            for process, place in self._running.items()
            if process.pid is not None and (places is None or place in places)
        ]

    def _start(self, place: int) -> None:
        target = (self._settings[place], self._listeners[place])
        process = self._context.Process(target=self._work, args=target)
        process.start()
        self._running[process] = place
        asyncio.get_running_loop().add_reader(process.sentinel, self._replace, process)

    def _forget(self, process: ForkServerProcess) -> int:
        asyncio.get_running_loop().remove_reader(process.sentinel)
        return self._running.pop(process)

    def _replace(self, process: ForkServerProcess) -> None:
        place = self._forget(process)
        process.join()
        assert process.pid is not None
        if process.exitcode == -signal.SIGKILL:
            self.killed.add(process.pid)
        else:
            self.ended[process.pid] = process.exitcode
        self._start(place)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def ended(leading: asyncio.Task[None]) -> None:
            self._leading.discard(leading)
            writer.close()  # close it here: a task that is cancelled before its first step would close nothing

        leading = asyncio.ensure_future(_lead(reader, writer, next(self._ports)))
        self._leading.add(leading)
        leading.add_done_callback(ended)


async def _lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    there, back = await asyncio.open_connection("127.0.0.1", port)
    onward = asyncio.ensure_future(_pump(reader, back))
    try:
        await _pump(there, writer)
    finally:
        onward.cancel()
        back.close()
        await asyncio.wait({onward})


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
