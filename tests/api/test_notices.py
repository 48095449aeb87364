"""``log`` and ``notify`` reach the client once, in the order of the program."""

from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch.testing import run_tool
from tests.api.replaying import next_round, willing


async def test_log_lines_and_progress_are_delivered_once_however_often_they_are_replayed(
    replay: bool,
) -> None:
    @tool
    async def outer(ctx: BranchContext) -> None:
        await ctx.log("info", "start")
        for number in range(3):
            await ctx.notify(f"step {number}", number, 3)
            await next_round(ctx)
        await ctx.notify("end")

    client = willing()
    await run_tool(outer, {}, client, replay=replay)
    assert client.log_calls == [("info", "start")]
    assert client.notify_calls == [
        ("step 0", 0, 3),
        ("step 1", 1, 3),
        ("step 2", 2, 3),
        ("end", None, None),
    ]


async def test_an_unknown_level_is_refused_where_it_is_made() -> None:
    """Over MCP an unknown level would fail far from the wrong line."""
    level: Any = "loud"

    @tool
    async def outer(ctx: BranchContext) -> None:
        await ctx.log(level, "x")

    with pytest.raises(ValueError, match="'loud' is no log level; use one of debug, info"):
        await run_tool(outer, {}, willing())


async def test_without_a_client_notices_are_dropped() -> None:
    """A tool that logs may run without a client."""

    @tool
    async def outer(ctx: BranchContext) -> str:
        await ctx.log("info", "x")
        await ctx.notify("y")
        return "done"

    assert await run_tool(outer) == "done"
