"""Two applications with separate stores share the Postgres of their engines."""

from anabranch.engines import Backlog, DBOSEngine, Wake
from tests.engines.worker_process import worker
from tests.postgres import Server


async def test_an_application_gets_only_its_wakes(postgres: Server) -> None:
    url = postgres.new_url()
    one, other = DBOSEngine(url, schema="dbos_one"), DBOSEngine(url, schema="dbos_other")
    for engine in (one, other):
        await engine.wake(Wake("c", "0", "a"))
    async with worker(url, "dbos_one") as living:  # a wake of the first application
        assert await living.readline() == b"begun c\n"
    assert await other.backlog() == Backlog(1, 0)
    await one.close()
    await other.close()
