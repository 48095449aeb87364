"""Requests a second of one HTTP process, from 64 clients, for a tool with one question.

Each server runs in a separate process. The clients in this process are 64 connections that send
requests as bytes and parse little of the replies, so that the server is the bottleneck. A call is two requests of
MCP 2026-07-28, the call and its retry with the answer. Three servers seal the state:

    ours      a linear function, replayed when the answer comes
    by hand   a function on the SDK's ``MCPServer`` that returns ``InputRequiredResult``; the lower bound
    FastMCP   the same function on FastMCP; the peer

The ratios are of times. A goal of 0.85 of the requests a second of a server by hand is 1.18 in these terms. p95
is the time in which 95 of 100 requests were answered.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import socket
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from multiprocessing.connection import Connection
from statistics import quantiles
from time import perf_counter
from typing import Any

import mcp_types as types
import uvicorn
from fastmcp import Context as FastMcpContext
from fastmcp import FastMCP
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from starlette.applications import Starlette

from anabranch import Accepted, BranchContext, Elicitation, tool
from anabranch.mcp import create_server
from bench.measure import Row, time_in_turns

NAME = "throughput"
TURNS = 8
CLIENTS = 64
CALLS = 2
"""Calls of each client in a turn, of two requests each."""
MODERN = "2026-07-28"
PATH = "/mcp"


class Reply(BaseModel):
    """The answer to the question."""

    text: str


REPLY = Elicitation("reply", Reply)
MESSAGE = "What comes next?"


@tool
async def ask(ctx: BranchContext, number: int) -> str:
    """Ask one question."""
    reply = await ctx.elicit(REPLY, MESSAGE)
    return f"{number}: {reply.content.text}" if isinstance(reply, Accepted) else "stopped"


def answered_by_hand(
    number: int, state: str | None, responses: Mapping[str, BaseModel] | None
) -> str | types.InputRequiredResult:
    """Return the result of a tool by hand for either request."""
    if state is None:
        form = types.ElicitRequestFormParams(message=MESSAGE, requested_schema=REPLY.schema)
        asked = types.ElicitRequest(params=form)
        return types.InputRequiredResult(
            input_requests={"reply": asked}, request_state=json.dumps({"asked": True})
        )
    assert json.loads(state) == {"asked": True}
    response = (responses or {})["reply"]
    assert isinstance(response, types.ElicitResult)
    if response.action != "accept":
        return "stopped"
    return f"{number}: {Reply.model_validate(response.content).text}"


def ours() -> Starlette:
    return create_server("bench", [ask]).streamable_http_app()


def by_hand() -> Starlette:
    server: MCPServer = MCPServer("bench", log_level="WARNING")

    async def ask(ctx: Context, number: int) -> str | types.InputRequiredResult:
        """Ask one question."""
        return answered_by_hand(number, ctx.request_state, ctx.input_responses)

    server.add_tool(ask)
    return server.streamable_http_app()


def by_fastmcp() -> Starlette:
    server: FastMCP[Any] = FastMCP("bench")

    async def ask(ctx: FastMcpContext, number: int) -> str | types.InputRequiredResult:
        """Ask one question."""
        return answered_by_hand(number, ctx.request_state, ctx.input_responses)

    server.tool(ask)
    return server.http_app()


SERVERS: dict[str, Callable[[], Starlette]] = {
    "ours": ours,
    "by hand": by_hand,
    "FastMCP": by_fastmcp,
}


def serve(name: str, ready: Connection) -> None:
    """Serve in this process, and send the port through ``ready``."""
    logging.disable(logging.CRITICAL)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ready.send(listening.getsockname()[1])
        config = uvicorn.Config(SERVERS[name](), log_config=None, access_log=False)
        uvicorn.Server(config).run(sockets=[listening])


@asynccontextmanager
async def served(name: str) -> AsyncGenerator[int]:
    """Start a server in a process; yield its port."""
    spawning = multiprocessing.get_context("spawn")
    ready, child = spawning.Pipe(duplex=False)
    process = spawning.Process(target=serve, args=(name, child))
    process.start()
    try:
        yield await asyncio.to_thread(ready.recv)
    finally:
        process.terminate()
        await asyncio.to_thread(process.join)


def request(port: int, params: dict[str, Any]) -> bytes:
    """Return the bytes of a ``tools/call``."""
    prefix = "io.modelcontextprotocol/"
    meta: dict[str, object] = {
        f"{prefix}protocolVersion": MODERN,
        f"{prefix}clientInfo": {"name": "bench", "version": "1"},
        f"{prefix}clientCapabilities": {"elicitation": {"form": {}}},
    }
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "ask", "_meta": meta, **params},
        }
    ).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nMcp-Protocol-Version: {MODERN}\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: ask\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class LoadClient:
    """One connection, which makes one call after the other."""

    def __init__(self, port: int, latencies: list[float]) -> None:
        self._port = port
        self._latencies = latencies

    async def run(self) -> None:
        """Make all calls of a turn."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        for number in range(CALLS):
            arguments = {"number": number}
            asked = await self._send({"arguments": arguments})
            [key] = asked["inputRequests"]
            answer = {key: {"action": "accept", "content": {"text": "on"}}}
            done = await self._send(
                {
                    "arguments": arguments,
                    "requestState": asked["requestState"],
                    "inputResponses": answer,
                }
            )
            assert done["content"][0]["text"] == f"{number}: on", done
        self._writer.close()
        await self._writer.wait_closed()

    async def _send(self, params: dict[str, Any]) -> dict[str, Any]:
        start = perf_counter()
        self._writer.write(request(self._port, params))
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        reply = await self._reader.readexactly(length)
        self._latencies.append(perf_counter() - start)
        result: dict[str, Any] = json.loads(reply)["result"]
        return result


async def load(port: int, latencies: list[float]) -> None:
    """Make the calls of all clients."""
    async with asyncio.TaskGroup() as clients:
        for _ in range(CLIENTS):
            clients.create_task(LoadClient(port, latencies).run())


async def rows() -> list[Row]:
    latencies: dict[str, list[float]] = {name: [] for name in SERVERS}
    async with AsyncExitStack() as stack:
        contenders = {
            name: partial(load, await stack.enter_async_context(served(name)), latencies[name])
            for name in SERVERS
        }
        times = await time_in_turns(contenders, TURNS)
    at = f"a question over HTTP, {CLIENTS} clients"
    found = [
        Row(NAME, f"{at}: time / by hand", times.ratio("ours", "by hand"), goal=1.18),
        Row(NAME, f"{at}: time / FastMCP by hand", times.ratio("ours", "FastMCP"), goal=1),
    ]
    for name in SERVERS:
        rate = CLIENTS * CALLS * 2 / times.best(name)
        found.append(Row(NAME, f"{at}: {name}", rate, "requests/s"))
        warm = latencies[name][CLIENTS * CALLS * 2 :]  # the first turn warms up
        p95 = quantiles(warm, n=20)[-1] * 1e3
        found.append(Row(NAME, f"{at}: {name}, p95", p95, "ms"))
    return found


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(rows())
