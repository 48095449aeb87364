"""The connection that holds a worker's lock breaks: it takes the lock again, and is not taken for dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import sqlalchemy as sa

from anabranch.engines import DBOSEngine, Wake
from anabranch.engines._advisory_locks import AdvisoryLocks
from anabranch.engines._dbos import unwaited
from anabranch.engines._living_workers import LOOKS, LivingWorkers
from tests.engines.worker_process import worker
from tests.patience import PATIENCE
from tests.postgres import Server

BOTH_LIVE = """
    WITH held AS (
        SELECT pid, (classid::bigint << 32) | objid::bigint AS key FROM pg_locks
        WHERE locktype = 'advisory' AND granted
    )
    SELECT one.pid FROM held AS one JOIN held AS other ON one.pid <> other.pid
    WHERE one.key = hashtextextended(%s, 0) AND other.key = hashtextextended(%s, 0)
"""
"""Finds something if two workers hold their locks; who looks at another holds that of both."""

OWNERS = """
    SELECT executor_id FROM dbos_broken.workflow_status WHERE status = 'PENDING'
    ORDER BY executor_id
"""


def found(url: str, query: str, *values: str) -> list[Any]:
    """Return the first values of what a query finds."""
    with psycopg.connect(unwaited(sa.make_url(url))) as connection:
        return [first for first, *_ in connection.execute(query.encode(), values).fetchall()]


class Two:
    """Two workers, and how each sees the other; each has a connection of its own."""

    def __init__(self, url: str) -> None:
        self._locks = [AdvisoryLocks(unwaited(sa.make_url(url))) for _ in range(2)]
        self.one, self.other = (
            LivingWorkers(locks, f"{url} {name}")
            for locks, name in zip(self._locks, ("one", "other"), strict=True)
        )
        self._name_of_other = f"{url} other"

    async def other_is_dead(self) -> bool:
        """Have the one look at the other."""
        assert await self.one.enter()
        self.one.look_at([self._name_of_other])
        async with self.one.is_dead(self._name_of_other) as is_dead:
            return is_dead

    async def close(self) -> None:
        for locks in self._locks:
            await locks.close()

    async def other_dies(self) -> None:
        await self._locks[1].unlock(self._name_of_other)


@asynccontextmanager
async def two_workers(url: str) -> AsyncGenerator[Two]:
    two = Two(url)
    assert await two.one.enter()
    assert await two.other.enter()
    yield two
    await two.close()


async def test_a_worker_is_dead_whose_lock_stays_free(postgres: Server) -> None:
    async with two_workers(postgres.new_url()) as two:
        assert [await two.other_is_dead() for _ in range(LOOKS)] == [False] * LOOKS
        await two.other_dies()
        assert [await two.other_is_dead() for _ in range(LOOKS)] == [*[False] * (LOOKS - 1), True]


async def test_workers_take_their_locks_again_when_connections_break(postgres: Server) -> None:
    async with two_workers(postgres.new_url()) as two:
        for _ in range(LOOKS):
            postgres.close_connections()
            assert not await two.other_is_dead()
            assert await two.other.enter()
        assert not await two.other_is_dead()
        await two.other_dies()
        assert [await two.other_is_dead() for _ in range(LOOKS)] == [*[False] * (LOOKS - 1), True]


async def test_knowledge_of_a_worker_without_work_is_forgotten(postgres: Server) -> None:
    async with two_workers(postgres.new_url()) as two:
        await two.other_dies()
        for _ in range(LOOKS):
            assert not await two.other_is_dead()
            two.one.look_at([])


async def test_a_worker_that_is_looked_at_enters_later(postgres: Server) -> None:
    url = postgres.new_url()
    async with two_workers(url) as two:
        await two.other_dies()
        two.one.look_at([f"{url} other"])
        async with two.one.is_dead(f"{url} other"):
            assert not await two.other.enter()
        assert await two.other.enter()


async def test_a_lock_whose_connection_broke_is_unlocked_by_that(postgres: Server) -> None:
    url = postgres.new_url()
    locks = AdvisoryLocks(unwaited(sa.make_url(url)))
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
            while not await asyncio.to_thread(found, url, BOTH_LIVE, *owners):
                pass
        assert found(url, OWNERS) == owners
    await engine.close()
