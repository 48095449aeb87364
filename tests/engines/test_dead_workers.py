"""A worker is killed in the middle of an advance: another one takes it up."""

from __future__ import annotations

import asyncio
import sys

import pytest

from anabranch._engine.combine import cancel_and_wait
from anabranch.engines import DBOSEngine, Wake, WorkLimits
from tests.postgres import Server

WORKER = """
import asyncio, sys
from anabranch.engines import DBOSEngine, WorkLimits

async def advance(wake):
    print("begun", wake.call, flush=True)
    await asyncio.get_running_loop().create_future()

async def main():
    engine = DBOSEngine(sys.argv[1], schema="dbos_killed")
    await engine.work({"a": "1"}, advance, WorkLimits())

asyncio.run(main())
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_what_a_killed_worker_had_begun_comes_again(postgres: Server) -> None:
    url = postgres.new_url()
    engine = DBOSEngine(url, schema="dbos_killed")
    advanced: asyncio.Queue[str] = asyncio.Queue()

    async def advance(wake: Wake) -> None:
        advanced.put_nowait(wake.call)

    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, url, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert killed.stdout is not None
        await engine.wake(Wake("c", "0", "a"))
        assert await killed.stdout.readline() == b"begun c\n"
    finally:
        killed.kill()
        await killed.wait()
    living = asyncio.ensure_future(engine.work({"a": "1"}, advance, WorkLimits()))
    assert await advanced.get() == "c"
    await cancel_and_wait([living])
    await engine.close()
