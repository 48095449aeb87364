"""A worker is killed in the middle of an advance: another one takes it up."""

from __future__ import annotations

from anabranch.engines import DBOSEngine, Wake
from tests.engines.worker_process import worker
from tests.postgres import Server


async def test_work_of_a_killed_worker_comes_again(postgres: Server) -> None:
    url = postgres.new_url()
    engine = DBOSEngine(url, schema="dbos_killed")
    await engine.wake(Wake("c", "0", "a"))
    async with worker(url, "hang") as killed:
        assert await killed.readline() == b"begun c\n"
    async with worker(url, "return") as living:
        assert await living.readline() == b"begun c\n"
    await engine.close()
