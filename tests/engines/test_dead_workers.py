"""A worker is killed in the middle of an advance: another one takes it up."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from anabranch.engines import DBOSEngine, Wake
from tests.postgres import Server


@asynccontextmanager
async def worker(
    url: str, how: str, schema: str = "dbos_killed"
) -> AsyncGenerator[asyncio.StreamReader]:
    """A worker in a process of its own, which is killed at the end; the value is what it prints."""
    command = ["-m", "tests.engines.dbos_process", "work", url, schema, how]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield process.stdout
    finally:
        process.kill()
        await process.communicate()  # which reads stdout to its end, and closes it


async def test_what_a_killed_worker_had_begun_comes_again(postgres: Server) -> None:
    url = postgres.new_url()
    engine = DBOSEngine(url, schema="dbos_killed")
    await engine.wake(Wake("c", "0", "a"))
    async with worker(url, "hang") as killed:
        assert await killed.readline() == b"begun c\n"
    async with worker(url, "return") as living:
        assert await living.readline() == b"begun c\n"
    await engine.close()
