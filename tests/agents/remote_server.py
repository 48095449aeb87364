"""A server over stdio with all kinds of tools: ``python -m tests.agents.remote_server``."""

import os
import sys

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server: MCPServer[None] = MCPServer("other maker's")


@server.tool()
def process() -> int:
    return os.getpid()


@server.tool()
def variables() -> dict[str, str]:
    return dict(os.environ)


@server.tool()
def die() -> str:
    os._exit(1)


@server.tool()
def paint(colour: str) -> str:
    """Return text with control codes that a terminal would obey."""
    return f"{colour} \x1b[0m"


@server.tool()
async def flood(ctx: Context, number: int) -> str:
    for each in range(number):
        await ctx.report_progress(each, number, f"at {each}")
    return "flooded"


class Words(BaseModel):
    text: str


@server.tool()
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Which?", Words)
    return f"{answer.action} {answer.data.text if answer.action == 'accept' else ''}"


if __name__ == "__main__":
    sys.stderr.write("\x1b[2Jstarting\n")
    server.run("stdio")
