"""A TARGET: the tools on which the command line is tested."""

import asyncio
import os
from pathlib import Path

from mcp_types import ImageContent
from pydantic import BaseModel

from anabranch import BranchContext, Elicitation, ToolError, tool


class Confirm(BaseModel):
    ok: bool


class Greeting(BaseModel):
    words: str
    times: int


CONFIRM = Elicitation("confirm", Confirm)


@tool
async def greet(ctx: BranchContext, who: str, times: int = 1) -> Greeting:
    return Greeting(words=f"Hello {who}", times=times)


@tool
async def count(ctx: BranchContext, words: list[str]) -> int:
    """Return a value that is no object."""
    return len(words)


@tool
async def picture(ctx: BranchContext):  # type: ignore[no-untyped-def]  # noqa: ANN201 - unstructured
    """Return a block that is no text."""
    return ImageContent(type="image", data="aGk=", mime_type="image/png")


@tool(elicits=[CONFIRM])
async def confirm(ctx: BranchContext, times: int = 1) -> list[str]:
    """Ask the user, and return the user's action."""
    return [(await ctx.elicit(CONFIRM, f"Sure ({n})?")).action for n in range(times)]


@tool
async def confirm_at_once(ctx: BranchContext) -> list[str]:
    answers = await ctx.gather(
        ctx.elicit(Confirm, "Left?", key="left"), ctx.elicit(Confirm, "Right?", key="right")
    )
    return [answer.action for answer in answers]


@tool
async def think(ctx: BranchContext, about: str) -> str:
    return (await ctx.sample(about)).text


@tool
async def pay(ctx: BranchContext) -> str:
    """Send the user to an address."""
    return (await ctx.elicit_url("Please pay.", "https://pay.example/1")).action


@tool
async def refuse(ctx: BranchContext) -> str:
    """Fail with an error whose text is meant for the caller."""
    raise ToolError("No seats are left.")


@tool
async def die(ctx: BranchContext) -> str:
    os._exit(7)


@tool
async def wait(ctx: BranchContext, notes: str) -> str:
    """Run a step with an undo, report it, and wait to be cancelled."""

    def note(word: str) -> None:
        with Path(notes).open("a") as file:
            file.write(f"{word}\n")

    await ctx.step(note, "done", undo=lambda _: note("undone"))
    await ctx.notify("waiting", progress=1, total=2)
    await asyncio.Event().wait()
    return "never"
