"""Calls that no one continues expire, however the host starts and whatever it runs."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from anabranch import BranchContext, tool
from anabranch.mcp import as_fastmcp_tool, install, install_fastmcp
from anabranch.stores import open_store
from tests.mcp.harness import MODERN, Answers, call_once, connected

RETURNED: list[str] = []


class Ok(BaseModel):
    ok: bool


@tool
async def lend(ctx: BranchContext) -> str:
    """Take something that must be given back, and ask."""
    taken = await ctx.step(lambda: "a book", name="take", undo=give_back)
    await ctx.elicit(Ok, "Keep it?")
    return taken


def give_back(what: str) -> None:
    RETURNED.append(what)


def mounted(store: Any) -> Any:
    inner: FastMCP[Any] = FastMCP("inner")
    install_fastmcp(inner, lend, store=store)
    outer: FastMCP[Any] = FastMCP("outer")
    outer.mount(inner)
    return outer._mcp_server  # pyright: ignore[reportPrivateUsage]


def single(store: Any) -> Any:
    server: FastMCP[Any] = FastMCP("single")
    server.add_tool(as_fastmcp_tool(lend, store=store))
    return server._mcp_server  # pyright: ignore[reportPrivateUsage]


def installed(store: Any) -> Any:
    server: MCPServer[Any] = MCPServer("theirs", log_level="WARNING")
    install(server, lend, store=store)
    return server


@pytest.mark.parametrize("make", [mounted, single, installed])
async def test_expiry_starts_with_the_first_call_where_no_lifespan_starts_it(make: Any) -> None:
    store = open_store("memory:")
    RETURNED.clear()
    async with connected(make(store), MODERN, Answers(elicit=print)) as client:
        await call_once(client, "lend")
    (record,) = await store.expired(float("inf"), 10)
    assert await store.finish(record.call_id, "open", deadline=0.0)
    async with connected(make(store), MODERN, Answers(elicit=print)) as client:
        await call_once(client, "lend")
        with anyio.fail_after(10):
            while not RETURNED:
                await anyio.lowlevel.checkpoint()
    assert RETURNED == ["a book"]
    await store.close()
