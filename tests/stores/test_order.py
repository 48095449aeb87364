"""On Postgres, ids have the order of commits: a writer waits for the lock on the call's row."""

import asyncio
from functools import partial
from typing import Any

import sqlalchemy as sa

from anabranch.stores import open_store
from anabranch.stores._engines import read_url
from tests.suites.call_samples import a_call
from tests.suites.expectations import opened

LOCK = sa.text("SELECT call_id FROM anabranch_call FOR NO KEY UPDATE")
INSERT = sa.text(
    "INSERT INTO anabranch_entry (call_id, number, step_id, text)"
    " SELECT call_id, 0, 'slow', 'first' FROM anabranch_call"
)
WAITING = sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")


async def test_the_earlier_commit_has_the_lower_id(postgres: Any) -> None:
    url = postgres.new_url()
    engine = sa.create_engine(read_url(url).url)
    # Each query sees the newest state.
    looking = engine.execution_options(isolation_level="AUTOCOMMIT")
    async with opened(partial(open_store, url)) as store:
        await store.begin(a_call())
        with engine.begin() as slow, looking.connect() as watcher:
            slow.execute(LOCK)
            recording = asyncio.ensure_future(store.record("call_1", 0, {"fast": "second"}))
            while not recording.done() and not watcher.scalar(WAITING):  # noqa: ASYNC110
                await asyncio.sleep(0.001)  # only the server knows that the writer waits
            slow.execute(INSERT)
        await recording

        assert list(await store.entries("call_1", 0)) == ["slow", "fast"]
    engine.dispose()
