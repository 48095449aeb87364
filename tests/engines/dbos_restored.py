"""Tests a chat over DBOS whose tables are restored to an earlier state, in a separate process.

``python -m tests.engines.dbos_restored URL`` exits with 0 if the test passes. A process can run one
DBOS, so the processes of the chat run one after the other.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import psycopg
from psycopg.sql import SQL, Identifier

from anabranch import BranchContext, tool
from anabranch._aio import SystemClock, Timer
from anabranch.engines import Backlog, DBOSEngine
from tests.chat.shared_runs import accepted, ended
from tests.chat.versions import at_version
from tests.chat.web import message
from tests.patience import PATIENCE

SCHEMA = "dbos_restored"
LATER = 600.0
"""Seconds after which the last process starts: longer than a run waits for its next wake."""

DONE: list[str] = []


@tool
async def note(ctx: BranchContext, what: str) -> str:
    await ctx.step(DONE.append, what)
    return what


class LaterClock(SystemClock):
    def now(self) -> float:
        return super().now() + LATER

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return super().call_at(when - LATER, callback)


@asynccontextmanager
async def process(
    url: str, clock: SystemClock, **options: Any
) -> AsyncGenerator[tuple[httpx2.AsyncClient, DBOSEngine]]:
    engine = DBOSEngine(url, schema=SCHEMA, clock=clock)
    async with at_version(url, engine, note, "1", clock=clock, **options) as client:
        yield client, engine
    await engine.close()


async def begin(client: httpx2.AsyncClient, thread: str) -> None:
    """Send a run to a process that does not work on runs."""
    await accepted(client, message(f"/note what={thread}", thread=thread, run=thread))


def tables(connection: psycopg.Connection) -> list[tuple[Identifier, Identifier]]:
    """Return DBOS's tables, each with the name of its copy."""
    named = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
    return [
        (Identifier(SCHEMA, name), Identifier(f"copy_{name}"))
        for (name,) in connection.execute(named, [SCHEMA])
    ]


def save(url: str) -> None:
    with psycopg.connect(url) as connection:
        for table, copy in tables(connection):
            connection.execute(SQL("CREATE TABLE {} AS SELECT * FROM {}").format(copy, table))


def restore(url: str) -> None:
    """Restore the tables from their copies."""
    with psycopg.connect(url) as connection:
        # Allows the tables to be filled in any order.
        connection.execute("SET session_replication_role = replica")
        for table, copy in tables(connection):
            connection.execute(SQL("DELETE FROM {}").format(table))
            columns = SQL(", ").join(
                Identifier(name)
                for (name,) in connection.execute(
                    "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass"
                    " AND attnum > 0 AND NOT attisdropped AND attgenerated = ''",
                    [table.as_string(connection)],
                )
            )
            connection.execute(
                SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(table, columns, columns, copy)
            )


async def main(url: str) -> None:
    now, later = SystemClock(), LaterClock()
    async with process(url, now, concurrency=None) as (front, engine):
        await begin(front, "early")
        assert await engine.backlog() == Backlog(waiting=1, running=0)
    save(url)
    async with process(url, now) as (client, _):
        first = await ended(client, "early")
    async with process(url, now, concurrency=None) as (front, _):
        await begin(front, "lost")
    restore(url)
    # Restore at the earlier time: at the later time, this process's upkeep might have found the
    # run.
    async with process(url, now, concurrency=None) as (_, engine):
        assert await engine.backlog() == Backlog(waiting=1, running=0), "what was lost, is lost"
    async with process(url, later) as (client, engine), asyncio.timeout(PATIENCE):
        await ended(client, "lost")
        while await engine.backlog() != Backlog(waiting=0, running=0):
            pass
        assert await ended(client, "early") == first
    assert DONE == ["early", "lost"], DONE


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
