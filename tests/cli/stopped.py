"""A TARGET whose calls are running when their server is stopped; also a program that serves it.

``python stopped.py stdio`` and ``python stopped.py uvicorn`` are servers without the command line.
"""

import asyncio
import sys
import threading
from pathlib import Path

from pydantic import BaseModel

from anabranch import BranchContext, tool
from anabranch.mcp import create_server

KEY = "a secret of at least thirty-two bytes"


class Ok(BaseModel):
    ok: bool


def note(notes: str, word: str) -> None:
    with Path(notes).open("a") as file:
        file.write(f"{word}\n")


@tool
async def wait(ctx: BranchContext, notes: str) -> str:
    """Run a step with an undo, report it, and never end."""
    await ctx.step(note, notes, "done", undo=lambda _: note(notes, "undone"))
    await ctx.notify("waiting", progress=1, total=2)
    await asyncio.Event().wait()
    return "never"


@tool
async def wait_in_undo(ctx: BranchContext, notes: str) -> str:
    """Run a step whose undo never ends, report it, and never end."""
    await ctx.step(note, notes, "done", undo=lambda _: threading.Event().wait())
    await ctx.notify("waiting", progress=1, total=2)
    await asyncio.Event().wait()
    return "never"


@tool
async def ask(ctx: BranchContext, notes: str) -> str:
    """Run a step with an undo, and ask."""
    await ctx.step(note, notes, "done", undo=lambda _: note(notes, "undone"))
    return (await ctx.elicit(Ok, "Go on?")).action


@tool
async def work(ctx: BranchContext, notes: str) -> str:
    await ctx.step(note, notes, "done", undo=lambda _: note(notes, "undone"))
    await ctx.notify("working", progress=1, total=2)
    await ctx.step(asyncio.Event().wait, name="work")
    return "never"


@tool
async def fail_to_undo(ctx: BranchContext, notes: str) -> str:
    """Run a step whose undo fails, and ask."""

    def fail(_: object) -> None:
        raise RuntimeError("It is sold.")

    await ctx.step(note, notes, "done", undo=fail)
    return (await ctx.elicit(Ok, "Go on?")).action


if __name__ == "__main__":
    server = create_server("stopped", [wait], keys=[KEY])
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        import uvicorn

        app = server.streamable_http_app()
        uvicorn.run(app, port=0, timeout_graceful_shutdown=1)
