"""10,000 sleeping wakes on DBOS: the delay of other wakes among them, and the worker's memory.

A sleeping call is a row of the store, and a row of the engine. The benchmark makes the engine's rows by copying
one wake, which sleeps for a week, in DBOS's table: wakes that are enqueued one by one are the same rows. The
worker is in this process. It does the same work before and after the copying, and so is warm; the benchmark compares
its memory. The delay of a wake is the time from its ``not_before`` until its advance begins.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from anabranch._aio import cancel_and_wait
from anabranch.engines import DBOSEngine, Wake
from bench.engine_processes import memory
from bench.measure import Row
from tests.postgres import Server

NAME = "sleepers"
SLEEPING = 10_000
ONE_BY_ONE, AT_ONCE = 30, 200
SOON, APART, WEEK = 2.0, 0.3, 7 * 86_400.0
TABLE = Identifier("dbos", "workflow_status")


class Worker:
    """Notes the delay of each wake."""

    def __init__(self, engine: DBOSEngine) -> None:
        self._engine = engine
        self._late: list[float] = []
        self._woken = asyncio.Semaphore(0)

    async def advance(self, wake: Wake) -> None:
        """Note the delay."""
        self._late.append(time.time() - wake.not_before)
        self._woken.release()

    async def latest(self, name: str, count: int, apart: float) -> float:
        """Return the delay in seconds of the latest of ``count`` wakes."""
        self._late.clear()
        first = time.time() + SOON
        for number in range(count):
            at = first + number * apart
            await self._engine.wake(Wake(f"{name}{number}", "0", "a", not_before=at))
        for _ in range(count):
            await self._woken.acquire()
        return max(self._late)


def fall_asleep(url: str) -> None:
    """Copy the one sleeping wake, until there are :data:`SLEEPING`."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'dbos'"
            " AND table_name = 'workflow_status' AND is_generated = 'NEVER'"
        ).fetchall()
        columns = [Identifier(name) for (name,) in found]
        copied = [
            SQL("workflow_uuid || '-' || number") if name == "workflow_uuid" else Identifier(name)
            for (name,) in found
        ]
        copying = SQL(
            "INSERT INTO {table} ({columns}) SELECT {copied} FROM {table}, generate_series(2, %s) number"
            " WHERE status = 'DELAYED'"
        )
        connection.execute(
            copying.format(
                table=TABLE, columns=SQL(", ").join(columns), copied=SQL(", ").join(copied)
            ),
            [SLEEPING],
        )


async def measured(url: str) -> list[Row]:
    """Measure one worker, without sleeping wakes and with them."""
    engine = DBOSEngine(url)
    worker = Worker(engine)
    working = asyncio.ensure_future(engine.work({"a": "1"}, worker.advance, 20))
    await worker.latest("warm", AT_ONCE, 0.0)
    crowd = await worker.latest("crowd", AT_ONCE, 0.0)
    alone = await worker.latest("alone", ONE_BY_ONE, APART)
    before = resident()
    await engine.wake(Wake("sleeper", "0", "a", not_before=time.time() + WEEK))
    await asyncio.to_thread(fall_asleep, url)
    at_once = await worker.latest("at-once", AT_ONCE, 0.0)
    among = await worker.latest("among", ONE_BY_ONE, APART)
    after = resident()
    asleep = (await engine.backlog()).waiting
    await cancel_and_wait([working])
    await engine.close()
    if asleep != SLEEPING:
        raise RuntimeError(f"{asleep} wakes sleep, not {SLEEPING}.")
    those = f"{SLEEPING:,} sleeping wakes, DBOS"
    return [
        Row(NAME, f"a wake among {those}: late at most", among, "s", goal=2),
        Row(NAME, f"{AT_ONCE} at the same time among {those}: late at most", at_once, "s", goal=2),
        Row(NAME, "a wake among none, DBOS: late at most", alone, "s"),
        Row(NAME, f"{AT_ONCE} at the same time among none, DBOS: late at most", crowd, "s"),
        Row(NAME, f"memory of the process: {those} / none", after / before, goal=1.1),
        Row(NAME, "memory of the process, no sleeping wakes, DBOS", before / 2**20, "MiB"),
    ]


def resident() -> int:
    """Return the bytes of memory of this process, after garbage collection."""
    gc.collect()
    return memory(os.getpid())


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    # A socket's path must be short, and open to the server's user.
    with tempfile.TemporaryDirectory(prefix="bench-") as place, ExitStack() as stack:
        server = Server(Path(place), durable=True)
        server.start()
        stack.callback(server.stop)
        return asyncio.run(measured(server.new_url()))
