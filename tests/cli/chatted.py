"""A TARGET for chats: tools that ask, that fail, and that never end."""

import asyncio
import threading

from pydantic import BaseModel

from anabranch import BranchContext, Elicitation, ToolError, tool


class Confirm(BaseModel):
    ok: bool


CONFIRM = Elicitation("confirm", Confirm)


@tool(elicits=[CONFIRM])
async def book(ctx: BranchContext, place: str) -> str:
    answer = await ctx.elicit(CONFIRM, f"Book {place}?")
    return f"{place}: {answer.action}"


@tool
async def fail(ctx: BranchContext) -> str:
    raise ToolError("It is closed.")


@tool
async def hang(ctx: BranchContext) -> str:
    """Report that the tool waits, and wait for ever."""
    await ctx.notify("waiting")
    await asyncio.Event().wait()
    return "never"


@tool
async def block(ctx: BranchContext) -> None:
    """Report that the tool waits, and wait for ever in a thread, which no signal can interrupt."""
    await ctx.notify("blocking")
    await ctx.step(threading.Event().wait)


@tool(requires={"sampling"})
async def ponder(ctx: BranchContext) -> str:
    """Log a line, and then sample."""
    await ctx.log("info", "pondering")
    return (await ctx.sample("rivers")).text


@tool
async def think(ctx: BranchContext, about: str) -> str:
    return (await ctx.sample(about)).text
