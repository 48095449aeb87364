"""Disturbs workers and their database by more than kills: pauses, cut connections, restarts.

Each disturbance lasts longer than a lease. It comes several times, each time after a number of new
lines in the ledger. The ledger records which processes are out of reach, and when.
"""

import asyncio
import os
import random
import signal
import tempfile
from collections.abc import AsyncGenerator, Collection, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, TypeAlias

from anabranch._aio import SystemClock, pause
from tests.faults import errand
from tests.faults.cluster import Cluster
from tests.faults.journey import LEASE, has_undo
from tests.faults.ledger import Ledger
from tests.faults.runs import Report, Run, Trial, plan
from tests.faults.stages import OVER_MCP, Stage
from tests.postgres import Server

Chaos: TypeAlias = Literal["kill", "stop", "restart", "cut", "clocks"]
EVERY: tuple[Chaos, ...] = ("kill", "stop", "restart", "cut", "clocks")

HALF_A_MINUTE = 30.0
"""Seconds by which a clock is ahead or behind; two clocks may therefore differ by a minute."""

SOCKET = ".s.PGSQL.5432"


@contextmanager
def own_server() -> Generator[Server]:
    """Start a database server that no other test uses, so that this test can stop it."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        server = Server(Path(name), connections=400)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def plan_in_chat(seed: str, number: int) -> list[Run]:
    """Return ``number`` runs of a chat: one in ten fails, and a worker dies in one of ten."""
    order = random.Random(seed)
    runs: list[Run] = []
    for index in range(number):
        fails = index % 10 == 0
        steps = range(1, errand.STEPS + 1)
        places = [f"{when}-step-{n}" for n in steps for when in ("before", "gap", "after")]
        if fails:
            undone = filter(has_undo, steps)
            places += [f"{when}-undo-{n}" for n in undone for when in ("before", "gap")]
        points = (order.choice(places),) if index % 10 == index // 10 % 10 else ()
        name = f"run{seed}.{index}"
        runs.append(Run(name, "failure" if fails else "success", "rounds", points, anyone=()))
    return runs


def plan_of(seed: str, number: int) -> list[Run]:
    """Return ``number`` runs: eight in ten succeed, one fails, and the user leaves one.

    A worker dies in one of ten.
    """
    order = random.Random(seed)
    by_scenario: dict[str, list[Run]] = {}
    for run in plan(seed, None)[3:]:
        by_scenario.setdefault(run.scenario, []).append(run)
    runs: list[Run] = []
    for index in range(number):
        scenario = {0: "failure", 1: "expired"}.get(index % 10, "success")
        run = order.choice(by_scenario[scenario])
        points = run.points if index % 10 == index // 10 % 10 else ()
        runs.append(replace(run, name=f"run{seed}.{index}", points=points, anyone=()))
    return runs


class Line:
    """A proxy between one worker and the database socket, which a test can cut.

    While the line is cut, connections stay open and no data passes, as in a network failure. Then
    the line closes the connections.
    """

    def __init__(self, server: Server) -> None:
        self._behind = server.folder / SOCKET
        self._passes = asyncio.Event()
        self._passes.set()
        self._pumps: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Path]:
        """Open the line within the block; yield the folder in which clients find its socket."""
        with tempfile.TemporaryDirectory(prefix="line-") as name:
            listening = await asyncio.start_unix_server(self._accept, Path(name) / SOCKET)
            try:
                yield Path(name)
            finally:
                listening.close()
                await self._close_all()

    async def cut(self, seconds: float) -> None:
        """Stop all data for ``seconds``, then close the open connections."""
        self._passes.clear()
        await pause(SystemClock(), seconds)
        await self._close_all()
        self._passes.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pump = asyncio.ensure_future(self._lead(reader, writer))
        self._pumps.add(pump)
        pump.add_done_callback(self._pumps.discard)

    async def _close_all(self) -> None:
        pumps = list(self._pumps)
        for pump in pumps:
            pump.cancel()
        if pumps:
            await asyncio.wait(pumps)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            there, back = await asyncio.open_unix_connection(self._behind)
            ends.append(back)
            ways = {
                asyncio.ensure_future(self._pump(reader, back)),
                asyncio.ensure_future(self._pump(there, writer)),
            }
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.wait(ways)
        except OSError:
            pass  # the server is down
        finally:
            for end in ends:
                end.close()
                with suppress(OSError):
                    await end.wait_closed()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                await self._passes.wait()
                sink.write(data)
                await sink.drain()


@contextmanager
def _away(ledger: Ledger, pids: Collection[int]) -> Generator[None]:
    """Record in the ledger that processes are out of reach within the block."""
    ledger.mark("away", pids)
    try:
        yield
    finally:
        ledger.mark("back", pids)


class Disturbance:
    """Disturbs the workers of a trial.

    Args:
        kinds: the kinds of disturbance.
        server: the database of the workers.
        lines: the proxies to the database, each with the places of the processes behind it.
        seconds: duration of each disturbance.
        after: number of ledger lines between one disturbance and the next.
        times: number of disturbances.
        restart: how the database is stopped.
    """

    def __init__(
        self,
        kinds: Sequence[Chaos],
        server: Server,
        lines: Sequence[tuple[Line, Collection[int]]],
        *,
        seconds: float,
        after: int,
        times: int,
        restart: Literal["immediate", "fast"],
    ) -> None:
        self._restart: Literal["immediate", "fast"] = restart
        self._server = server
        self._lines = cycle(lines)
        self._seconds = seconds
        self._after = after
        self._times = times
        self._ways: list[Chaos] = [kind for kind in kinds if kind != "clocks"]

    async def __call__(self, ledger: Ledger, cluster: Cluster) -> None:
        """Disturb the workers while they work."""
        for number in range(1, self._times + 1):
            while ledger.length() < number * self._after:
                # Other processes work and send no signal here, so this process polls.
                await pause(SystemClock(), 0.1)
            for place, way in enumerate(self._ways, number):
                pids = cluster.pids()
                await self._disturb(way, pids[place % len(pids)], ledger, cluster)

    async def _disturb(self, way: Chaos, pid: int, ledger: Ledger, cluster: Cluster) -> None:
        """Disturb one process, all processes behind one line, or all processes."""
        if way == "kill":
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        elif way == "stop":
            # The process may have been killed.
            with suppress(ProcessLookupError), _away(ledger, [pid]):
                os.kill(pid, signal.SIGSTOP)
                await pause(SystemClock(), self._seconds)
            # Only after the ledger records that the process is back.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        elif way == "restart":
            with _away(ledger, cluster.pids()):
                await asyncio.to_thread(self._server.stop, self._restart)
                await asyncio.to_thread(self._server.start_again)
        else:
            line, behind = next(self._lines)
            with _away(ledger, cluster.pids(behind)):
                await line.cut(self._seconds)


async def disturb(
    folder: Path,
    server: Server,
    runs: Sequence[Run],
    kinds: Sequence[Chaos],
    *,
    speed: float,
    at_once: int,
    times: int,
    stage: Stage = OVER_MCP,
) -> Report:
    """Perform ``runs`` on a database of ``server``, which no other test uses; ``folder`` is empty."""
    url = server.new_url()
    lines = [Line(server) for _ in range(2)]
    apart = HALF_A_MINUTE if "clocks" in kinds else 0.0
    async with lines[0].open() as first, lines[1].open() as second:
        ways = {0: first, 1: second, None: server.folder}
        workers: list[Mapping[str, Any]] = [
            {
                "url": url.replace(str(server.folder), str(ways[place.line])),
                "ahead": place.ahead * apart,
                "on_engine": True,
                "concurrency": None if index < stage.fronts else at_once,
            }
            for index, place in enumerate(stage.places)
        ]
        behind = [
            [index for index, place in enumerate(stage.places) if place.line == number]
            for number in range(len(lines))
        ]
        disturbing = Disturbance(
            kinds,
            server,
            list(zip(lines, behind, strict=True)),
            seconds=1.5 * LEASE / speed,
            after=len(runs) * stage.least_lines // (times + 1),
            times=times,
            restart=stage.restart,
        )
        trial = Trial(
            folder,
            url,
            speed=speed,
            at_once=at_once,
            stage=stage,
            workers=workers,
            disturb=disturbing,
        )
        return await trial.go(runs)
