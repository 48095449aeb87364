"""Tests a chat's run over DBOS that waits for a worker of another version, in a separate process.

``python -m tests.engines.dbos_versions URL`` exits with 0 if the test passes. A process can run one
DBOS, so the processes of the chat run one after the other.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx2

from anabranch.engines import DBOSEngine
from anabranch.tool import Tool
from tests.chat.versions import at_version, book_1, end_of, open_runs, waiting_for_version_1
from tests.diary import DONE


@asynccontextmanager
async def process(url: str, tool: Tool[Any], version: str) -> AsyncGenerator[httpx2.AsyncClient]:
    engine = DBOSEngine(url, schema="dbos_versions")
    async with at_version(url, engine, tool, version) as client:
        yield client
    await engine.close()


async def main(url: str) -> None:
    async with waiting_for_version_1(url, partial(process, url)):
        [waits] = await open_runs(url)
        assert (waits.state, waits.version) == ("waiting", "1"), waits
    async with process(url, book_1, "1") as again:
        events = await end_of(again, "r2")
    assert events[-1]["outcome"] == {"type": "success"}, events
    assert DONE == ["reserved", "charged"], DONE


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
