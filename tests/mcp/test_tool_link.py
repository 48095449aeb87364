"""Only the calls of a broken connection report that the connection broke."""

import asyncio
import gc
from types import TracebackType
from typing import Any

from mcp import Client
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import MCPServer

from anabranch.mcp._tool_link import Link, ToolList


class Breaking(InMemoryTransport):
    """A connection that raises when it is closed, like one over HTTP whose reply was cut."""

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await super().__aexit__(exc_type, exc_val, exc_tb)
        raise ConnectionResetError("cut")


async def test_a_broken_connection_that_is_dropped_is_not_reported() -> None:
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: reported.append(context))
    try:
        link = Link(Client(Breaking(MCPServer("some"))), ToolList("some"))
        await link.open()
        link.retire()
        while link.is_open:  # noqa: ASYNC110 - its end is seen in no other way
            await asyncio.sleep(0)
        del link
        gc.collect()
    finally:
        loop.set_exception_handler(before)
    assert reported == []
