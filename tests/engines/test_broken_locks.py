"""The connection that holds a worker's lock breaks: it takes the lock again, and is not taken for dead."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import sqlalchemy as sa

from anabranch.engines import DBOSEngine, Wake
from anabranch.engines._dbos import unwaited
from anabranch.engines._job_locks import JobLocks
from tests.engines.worker_process import worker
from tests.patience import PATIENCE
from tests.postgres import Server

LIVING = """
    SELECT lpad(to_hex(objid::bigint), 8, '0') FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 2
"""
"""Finds the names of the workers that hold their locks."""

OWNERS = """
    SELECT executor_id FROM dbos_broken.workflow_status WHERE status = 'PENDING'
    ORDER BY executor_id
"""


def found(url: str, query: str) -> list[Any]:
    """Return the first values of what a query finds."""
    with psycopg.connect(unwaited(sa.make_url(url))) as connection:
        return [first for first, *_ in connection.execute(query.encode()).fetchall()]


async def test_a_lock_whose_connection_broke_is_unlocked_by_that(postgres: Server) -> None:
    url = postgres.new_url()
    locks = JobLocks(unwaited(sa.make_url(url)))
    assert await locks.try_lock(url)
    postgres.close_connections()
    await locks.unlock(url)
    assert await locks.try_lock(url)
    await locks.close()


async def test_the_work_of_workers_whose_connections_broke_stays_theirs(postgres: Server) -> None:
    url, schema = postgres.new_url(), "dbos_broken"
    engine = DBOSEngine(url, schema=schema)
    for call in ("c", "d"):
        await engine.wake(Wake(call, "0", "a"))
    async with worker(url, "hang", schema) as first, worker(url, "hang", schema) as second:
        begun = {await first.readline(), await second.readline()}
        assert begun == {b"begun c\n", b"begun d\n"}
        owners = found(url, OWNERS)
        postgres.close_connections()
        async with asyncio.timeout(PATIENCE):
            while not {*owners} <= {*await asyncio.to_thread(found, url, LIVING)}:
                pass
        assert found(url, OWNERS) == owners
    await engine.close()
