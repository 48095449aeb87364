"""A wake within a transaction of the caller's counts if the transaction does."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import count

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from anabranch.engines import Backlog, DBOSEngine
from tests.postgres import Server
from tests.suites.engine_samples import a_wake

SCHEMAS = (f"dbos_within_{number}" for number in count())
"""A schema for each test: what one has enqueued is not another's backlog."""

NOTHING, ONE = Backlog(waiting=0, running=0), Backlog(waiting=1, running=0)


@pytest.fixture
def url(postgres: Server) -> sa.URL:
    return sa.make_url(postgres.new_url())


@pytest.fixture
async def engine(url: sa.URL) -> AsyncGenerator[DBOSEngine]:
    engine = DBOSEngine(url.render_as_string(hide_password=False), schema=next(SCHEMAS))
    yield engine
    await engine.close()


async def test_a_wake_within_a_transaction_is_rolled_back_with_it(
    engine: DBOSEngine, url: sa.URL
) -> None:
    database = sa.create_engine(url.set(drivername="postgresql+psycopg"))
    with database.connect() as connection:
        await engine.wake(a_wake("c"), within=connection)
        connection.rollback()
        assert await engine.backlog() == NOTHING
        await engine.wake(a_wake("c"), within=connection)
        assert await engine.backlog() == NOTHING
        connection.commit()
    assert await engine.backlog() == ONE
    database.dispose()


async def test_a_wake_within_an_async_transaction_is_rolled_back_with_it(
    engine: DBOSEngine, url: sa.URL
) -> None:
    database = create_async_engine(url.set(drivername="postgresql+psycopg"))
    async with database.connect() as connection:
        await engine.wake(a_wake("d"), within=connection)
        await connection.rollback()
        assert await engine.backlog() == NOTHING
        await engine.wake(a_wake("d"), within=connection)
        assert await engine.backlog() == NOTHING
        await connection.commit()
    assert await engine.backlog() == ONE
    await database.dispose()


async def test_the_same_wake_again_leaves_the_transaction_usable(
    engine: DBOSEngine, url: sa.URL
) -> None:
    database = sa.create_engine(url.set(drivername="postgresql+psycopg"))
    await engine.wake(a_wake("e"))
    with database.begin() as connection:
        await engine.wake(a_wake("e"), within=connection)
        assert connection.scalar(sa.text("SELECT 1")) == 1
    assert await engine.backlog() == ONE
    database.dispose()
