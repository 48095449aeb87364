"""Two applications, each with a store of its own, share the Postgres of their engines."""

from __future__ import annotations

import asyncio

from anabranch._aio import cancel_and_wait
from anabranch.engines import Backlog, DBOSEngine, Wake
from tests.engines.worker_process import worker
from tests.postgres import Server
from tests.suites.engine_samples import Changes


async def test_each_application_has_its_own_wakes_and_jobs(postgres: Server) -> None:
    url = postgres.new_url()
    one, other = DBOSEngine(url, schema="dbos_one"), DBOSEngine(url, schema="dbos_other")
    for engine in (one, other):
        await engine.wake(Wake("c", "0", "a"))
    async with worker(url, "dbos_one") as living:  # of the first
        assert await living.readline() == b"begun c\n"
    assert await other.backlog() == Backlog(1, 0)

    ran: set[str] = set()
    changes = Changes()

    async def job(name: str) -> None:
        ran.add(name)
        changes.report()

    first = asyncio.ensure_future(one.every("j", 0.1, lambda: job("one")))
    await changes.until(lambda: "one" in ran, "the job of the first")
    second = asyncio.ensure_future(other.every("j", 0.1, lambda: job("other")))
    await changes.until(lambda: "other" in ran, "the same job of the other, meanwhile")
    await cancel_and_wait([first, second])
    await one.close()
    await other.close()
