"""Branches of context folding: creation and return, in this process and on SQLite.

On SQLite, a creation and a return write the same rows as a bare transaction of the driver: session,
branch and count, in another file with the same durability. The bare transaction runs in a thread, as the
store's does, since an event loop cannot wait for a disk. The bare transaction leaves out the service's
checks, its search for overdue branches, and the records as JSON.

Further rows: a creation among 10,000 open branches, against the first creation; and the requests of a task
to the model, here and in two frameworks that shorten contexts by summaries (``folding_peers.py``).
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from time import perf_counter

from anabranch.folding import BranchService, BranchStore, FoldingSettings
from anabranch.stores import open_branch_store
from bench.folding_peers import measure_peers
from bench.measure import Row, time_in_turns

NAME = "folding"
TIMED, TURNS, OPEN = 1_000, 9, 10_000
SETTINGS = FoldingSettings(max_concurrent_per_instance=3 * OPEN)
RECORD = b"x" * 400


async def lasts(work: Callable[[], Awaitable[object]]) -> float:
    start = perf_counter()
    await work()
    return perf_counter() - start


def rows(where: str, what: str, times: list[float], goal: float | None) -> list[Row]:
    times.sort()
    return [
        Row(NAME, f"{what}, {where}, p50", 1e3 * times[len(times) // 2], "ms"),
        Row(NAME, f"{what}, {where}, p99", 1e3 * times[len(times) * 99 // 100], "ms", goal),
    ]


async def latencies(where: str, store: BranchStore, number: int, goal: float) -> list[Row]:
    service = BranchService(store, SETTINGS)
    created: list[float] = []
    returned: list[float] = []
    for _ in range(number):
        start = perf_counter()
        branch = (await service.create("Find it", "Look everywhere.")).branch
        created.append(perf_counter() - start)
        start = perf_counter()
        await service.complete("It is here.", branch_id=branch.id)
        returned.append(perf_counter() - start)
    await service.store.close()
    both = rows(where, "branch_create", created, goal), rows(where, "branch_return", returned, goal)
    return [row for each in both for row in each]


def bare(file: Path) -> Callable[[], None]:
    """Return a transaction of the driver that writes a session, a branch and the count."""
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = FULL")
    names = count()

    def write() -> None:
        name = b"%d" % next(names)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "INSERT INTO anabranch_folding_session VALUES (?, 1.0, ?)", (name, RECORD)
        )
        connection.execute(
            "INSERT INTO anabranch_branch (id, session, deadline, record) VALUES (?, ?, 2.0, ?)",
            (name, name, RECORD),
        )
        connection.execute("UPDATE anabranch_branch_count SET open = open + 1")
        connection.execute("COMMIT")

    return write


async def against_bare(folder: Path) -> list[Row]:
    files = [folder / "store.db", folder / "bare.db"]
    for file in files:
        store = open_branch_store(f"sqlite:///{file}")
        await store.branch("")  # creates the tables
        if file is files[1]:
            await store.close()
    service = BranchService(open_branch_store(f"sqlite:///{files[0]}"), SETTINGS)
    write, loop = bare(files[1]), asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1)

    async def create() -> None:
        for _ in range(20):
            await service.create("Find it", "Look everywhere.")

    async def insert() -> None:
        for _ in range(20):
            await loop.run_in_executor(thread, write)

    times = await time_in_turns({"create": create, "bare": insert}, TURNS)
    await service.store.close()
    thread.shutdown()
    ratio = times.ratio("create", "bare")
    return [
        Row(NAME, "branch_create on SQLite / a bare transaction of the same rows", ratio, "x", 1.5)
    ]


async def many(where: str, first: BranchStore, other: BranchStore) -> Row:
    empty, full = BranchService(first, SETTINGS), BranchService(other, SETTINGS)
    for _ in range(OPEN // 500):
        await asyncio.gather(*(full.create("Find it", "Look.") for _ in range(500)))

    def creating(service: BranchService) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            for _ in range(50):
                branch = (await service.create("Find it", "Look.")).branch
                await service.complete("m", branch_id=branch.id)

        return run

    times = await time_in_turns({"empty": creating(empty), "full": creating(full)}, TURNS)
    for service in (empty, full):
        await service.store.close()
    measured = f"a branch among {OPEN:,} open / the first, {where}"
    return Row(NAME, measured, times.ratio("full", "empty"), "x", 1.3)


async def compare() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)

        def store(name: str) -> BranchStore:
            return open_branch_store(f"sqlite:///{place}/{name}.db")

        def memory() -> BranchStore:
            return open_branch_store("memory:")

        return [
            *await latencies("in memory", memory(), TIMED, 1.0),
            *await latencies("on SQLite", store("latencies"), TIMED, 50.0),
            *await against_bare(place),
            await many("in memory", memory(), memory()),
            await many("on SQLite", store("first"), store("full")),
            *await measure_peers(),
        ]


def measure() -> list[Row]:
    return asyncio.run(compare())
