"""A DBOS worker in a process of its own."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


@asynccontextmanager
async def worker(url: str, schema: str) -> AsyncGenerator[asyncio.StreamReader]:
    """A worker in a process of its own, which is killed at the end; the value is what it prints."""
    command = ["-m", "tests.engines.dbos_process", "work", url, schema]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield process.stdout
    finally:
        process.kill()
        await process.communicate()  # which reads stdout to its end, and closes it
