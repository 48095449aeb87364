"""A server that loses its replies to some calls on the way."""

from collections.abc import MutableMapping
from typing import Any

import anyio.lowlevel
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch.mcp import create_server
from tests.mcp.harness import KEY


class Seats(BaseModel):
    n: int


def booking(effects: list[str], store: Any) -> MCPServer[Any]:
    @tool
    async def book(ctx: BranchContext) -> str:
        """Book a seat, and as many more as the user wants."""
        await ctx.step(effects.append, "one")
        answer = await ctx.elicit(Seats, "How many more?")
        await ctx.step(effects.append, "more")
        return f"{answer.content.n if isinstance(answer, Accepted) else 0} more"

    @tool
    async def plain(ctx: BranchContext) -> str:
        await ctx.step(effects.append, "one")
        return "booked"

    return create_server("lossy", [book, plain], keys=[KEY], store=store)


class Lossy:
    """An application that runs every call, and loses the replies to some of them.

    Attributes:
        lost: the numbers of the calls whose replies are lost.
        called: how many calls have arrived.
    """

    def __init__(self, server: MCPServer[Any], kind: str, *lost: int) -> None:
        self.app: Any = server.streamable_http_app()
        self.kind = kind
        self.lost = lost
        self.called = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        message = await receive()
        while message.get("more_body"):
            more = await receive()
            message = {**more, "body": message["body"] + more["body"]}
        is_call = any(f'"tools/{name}"'.encode() in message["body"] for name in CALLS)
        number, self.called = self.called, self.called + is_call
        left = [message]

        async def received() -> Any:
            return left.pop() if left else await receive()

        if not is_call or number not in self.lost:
            await self.app(scope, received, send)
            return

        async def dropped(_: Any) -> None:
            await anyio.lowlevel.checkpoint()

        await self.app(scope, received, dropped)
        headers = [(b"content-type", self.kind.encode()), (b"content-length", b"100")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b" ", "more_body": True})


CALLS = ("call", "callSaga", "resumeSaga")

KINDS = ["application/json", "text/event-stream"]
