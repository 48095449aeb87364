"""A worker on DBOS deletes old wakes, any number of them, and no others."""

from __future__ import annotations

import asyncio
import time

import psycopg

from anabranch.engines import DBOSEngine, Wake
from tests.engines.worker_process import worker
from tests.patience import PATIENCE
from tests.postgres import Server

HOUR, MARGIN = 3600, 300
"""The seconds of an hour, and the seconds between a time of the test and the nearest deadline."""

COPY = """
INSERT INTO dbos.workflow_status
    (workflow_uuid, status, completed_at, started_at_epoch_ms,
     name, created_at, updated_at, priority, application_name)
SELECT %(name)s || number, %(status)s, %(done)s, %(taken)s,
     name, created_at, updated_at, priority, application_name
FROM dbos.workflow_status, generate_series(1, %(times)s) AS number
WHERE workflow_uuid LIKE 'pruning-waits/%%'
"""


async def test_a_worker_deletes_wakes_done_an_hour_ago_or_lost_a_day_ago(postgres: Server) -> None:
    url, now = postgres.new_url(), time.time()
    engine = DBOSEngine(url)
    await engine.wake(Wake("pruning-waits", "0", "missing"))
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:

        async def copy(name: str, status: str, seconds: float, times: int) -> None:
            taken = int((now - seconds) * 1000)
            done = taken if status == "SUCCESS" else None
            row = {
                "name": f"pruning-{name}",
                "status": status,
                "taken": taken,
                "done": done,
                "times": times,
            }
            await connection.execute(COPY, row)

        async def stored() -> set[str]:
            # The database also has wakes of other tests.
            names = await connection.execute(
                "SELECT workflow_uuid FROM dbos.workflow_status WHERE workflow_uuid LIKE 'pruning-%'"
            )
            return {name.partition("/")[0].removeprefix("pruning-") async for (name,) in names}

        # A pass deletes at most 1,000 wakes and comes every ten seconds: too slow for the test's
        # timeout.
        await copy("done/", "SUCCESS", HOUR + MARGIN, 6_001)
        await copy("done just now/", "SUCCESS", HOUR - MARGIN, 2)
        await copy("lost/", "PENDING", 24 * HOUR + MARGIN, 1_001)
        await copy("runs/", "PENDING", 24 * HOUR - MARGIN, 2)
        kept = {"waits", "done just now", "runs"}
        assert await stored() == {*kept, "done", "lost"}
        async with worker(url, "dbos"), asyncio.timeout(PATIENCE):
            while {"done", "lost"} & (left := await stored()):
                pass
        assert left == kept
    await engine.close()
