"""``sys.exit()`` in a tool ends its call, and the server continues."""

import sys
from pathlib import Path

import pytest
from mcp import Client

from anabranch import BranchContext, StepFailed, tool
from anabranch.tool import Tool
from tests.mcp.harness import ERAS, connected, serving, text_of
from tests.sagas.harness import call_saga

WAYS = ["tool", "step", "thread", "branch", "undo"]


def leaving(done: list[str]) -> Tool[str]:  # noqa: C901 - one way to leave after another
    def leave(value: object = None) -> None:
        sys.exit(3)

    async def leave_async() -> None:
        sys.exit("bye")

    async def leave_in(ctx: BranchContext) -> None:
        sys.exit(3)

    async def undo(value: object) -> None:
        done.append("undone")

    async def work() -> None:
        done.append("done")

    @tool
    async def leaves(ctx: BranchContext, how: str) -> str:
        if how == "caught":
            try:
                await ctx.step(leave)
            except StepFailed as failed:
                return failed.error
        await ctx.step(work, undo=undo)
        match how:
            case "tool":
                sys.exit(3)
            case "step":
                await ctx.step(leave_async)
            case "thread":
                await ctx.step(leave)
            case "branch":
                await ctx.gather(ctx.branch(leave_in), ctx.branch(leave_in))
            case _:
                await ctx.step(work, name="more", undo=leave)
                raise ValueError
        return "stayed"

    return leaves


async def outcome(client: Client, how: str) -> tuple[bool | None, str]:
    result = await client.call_tool("leaves", {"how": how})
    return result.is_error, text_of(result)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("how", WAYS)
async def test_a_server_continues_after_a_tool_exits(
    how: str, era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch._engine.compensations.RETRY_AFTER", ())
    done: list[str] = []
    async with connected(serving(leaving(done)), era) as client:
        is_error, _ = await outcome(client, how)
        assert is_error
        assert done[-1] == "undone"
        saga = await call_saga(client, "leaves", {"how": how})
        assert saga["isError"]
        assert await outcome(client, "caught") == (False, "RuntimeError")
