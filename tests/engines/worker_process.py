"""Starts a DBOS worker in a separate process."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


@asynccontextmanager
async def worker(url: str, schema: str) -> AsyncGenerator[asyncio.StreamReader]:
    """Run a worker in a separate process within the block, and yield its output; the end kills it."""
    command = ["-m", "tests.engines.dbos_process", "work", url, schema]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield process.stdout
    finally:
        process.kill()
        await process.communicate()  # reads stdout to its end and closes it
