"""A TARGET that is served behind a proxy."""

import asyncio

from pydantic import BaseModel

from anabranch import BranchContext, tool


class Ok(BaseModel):
    ok: bool


heard = asyncio.Event()


@tool
async def talk(ctx: BranchContext) -> str:
    """Report progress, wait until the client has received it, and ask."""
    await ctx.notify("half done", progress=1, total=2)
    await ctx.step(heard.wait, name="heard")
    heard.clear()
    return (await ctx.elicit(Ok, "Go on?")).action


@tool
async def hear(ctx: BranchContext) -> str:
    """Report that the client has received the progress."""
    heard.set()
    return "heard"
