"""Runs a small TCP server for one test, on a free port."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(handle: Handler) -> AsyncGenerator[int]:
    """Listen within the block, and yield the port. Leaving the block ends all connections and handlers.

    The server closes a connection when its handler returns. A handler may fail because its client
    left.
    """
    handlers: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await handle(reader, writer)
                writer.close()
                await writer.wait_closed()
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.add(asyncio.ensure_future(talk(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for talking in handlers:
            talking.cancel()
        failed = await asyncio.gather(*handlers, return_exceptions=True)
        for error in failed:
            if isinstance(error, Exception):
                raise error
