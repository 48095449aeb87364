"""Errors from a task group in a tool: callers read the first, as from ``ctx.gather``."""

import asyncio

import anyio
import pytest
from mcp import Client

from anabranch import BranchContext, CapabilityError, ToolError, tool
from anabranch.mcp import create_server
from anabranch.testing import run_tool
from tests.api.replaying import next_round, willing
from tests.mcp.harness import HANDSHAKE, MODERN, text_of


async def fail(error: Exception) -> None:
    raise error


@tool
async def one(ctx: BranchContext) -> None:
    await next_round(ctx)
    async with asyncio.TaskGroup() as group:
        group.create_task(fail(ToolError("the shop is closed")))


@tool
async def nested(ctx: BranchContext) -> None:
    await next_round(ctx)
    async with anyio.create_task_group() as outer:
        async with anyio.create_task_group() as inner:
            inner.start_soon(fail, ToolError("the shop is closed"))
        outer.start_soon(fail, ToolError("later"))


@tool
async def several(ctx: BranchContext) -> None:
    await next_round(ctx)
    async with asyncio.TaskGroup() as group:
        group.create_task(fail(ToolError("the shop is closed")))
        group.create_task(fail(ToolError("later")))


@tool
async def mixed(ctx: BranchContext) -> None:
    await next_round(ctx)
    async with asyncio.TaskGroup() as group:
        group.create_task(fail(ToolError("the shop is closed")))
        group.create_task(fail(OSError("password")))


@tool
async def asking(ctx: BranchContext) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(next_round(ctx))


@pytest.mark.parametrize("made", [one, nested, several], ids=lambda made: made.name)
async def test_the_first_error_of_a_task_group_ends_the_call(made: object, replay: bool) -> None:
    with pytest.raises(ToolError, match="the shop is closed"):
        await run_tool(made, {}, willing(), replay=replay)  # type: ignore[arg-type]


async def test_a_group_with_another_error_stays_whole(replay: bool) -> None:
    with pytest.raises(ExceptionGroup):
        await run_tool(mixed, {}, willing(), replay=replay)


async def test_a_missing_capability_is_named_from_a_task_group() -> None:
    with pytest.raises(CapabilityError, match="elicitation"):
        await run_tool(asking)


@pytest.mark.parametrize("mode", [MODERN, HANDSHAKE])
async def test_the_client_reads_the_error_of_a_task_group(mode: str) -> None:
    @tool
    async def closed(_: BranchContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail(ToolError("the shop is closed")))

    async with Client(create_server("shop", [closed]), mode=mode) as client:
        assert "the shop is closed" in text_of(await client.call_tool("closed"))
