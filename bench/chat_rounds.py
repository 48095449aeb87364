"""The CPU time of a server for a tool with a question: in the chat's web application, and over MCP.

Each server runs in a separate process with a SQLite file, and reports its CPU seconds. A client in this
process makes one call after the other, over HTTP:

    MCP    ``tools/call``, and its retry with the answer (2026-07-28)
    chat   ``POST /agui`` with a message, for which the model calls the tool; and ``POST /agui`` with
           the answer, after which the model replies

Both servers have the same tool. The chat also stores the conversation and the events for pages, and asks a
scripted model twice.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import re
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import uvicorn
from pydantic import BaseModel
from starlette.applications import Starlette

from anabranch import Accepted, BranchContext, Elicitation, tool
from anabranch.chat import make_chat_app
from anabranch.mcp import create_server
from anabranch.messages import SampleReply, SampleRequest, ToolResultBlock
from anabranch.stores import open_stores
from anabranch.testing import MockModel, calls
from bench.measure import Row
from bench.throughput import MODERN, PATH

NAME = "chat"
TURNS = 5
CALLS = 60


class Seat(BaseModel):
    """The answer to the question."""

    row: int


SEAT = Elicitation("seat", Seat)


def taken(row: int) -> int:
    return row


@tool(elicits=[SEAT])
async def reserve(ctx: BranchContext) -> str:
    """Ask for a row, and take it."""
    answer = await ctx.elicit(SEAT, "Which row?")
    row = answer.content.row if isinstance(answer, Accepted) else 0
    return f"Row {await ctx.step(taken, row)}"


def reply(request: SampleRequest) -> SampleReply:
    last = request.messages[-1].content[-1]
    return calls(text="Done.") if isinstance(last, ToolResultBlock) else calls(("u", "reserve", {}))


def chat(folder: str) -> Starlette:
    stored, trees = open_stores(f"sqlite:///{folder}/chat.db")
    return make_chat_app(trees, MockModel(reply), [reserve], calls=stored, closes_store=True)


def mcp(folder: str) -> Starlette:
    store = f"sqlite:///{folder}/calls.db"
    return create_server("bench", [reserve], store=store).streamable_http_app()


SERVERS: dict[str, Callable[[str], Starlette]] = {"chat": chat, "MCP": mcp}


def serve(name: str, folder: str, parent: Connection) -> None:
    """Serve in this process; send the port, and the CPU seconds so far for each request of the parent."""
    logging.disable(logging.CRITICAL)

    def report() -> None:
        while parent.recv() == "CPU":
            parent.send(time.process_time())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        parent.send(listening.getsockname()[1])
        threading.Thread(target=report, daemon=True).start()
        config = uvicorn.Config(SERVERS[name](folder), log_config=None, timeout_keep_alive=600)
        uvicorn.Server(config).run(sockets=[listening])


@contextmanager
def served(name: str) -> Generator[tuple[HTTPConnection, Connection]]:
    """Start a server; yield an HTTP connection, and the connection that asks for its CPU time."""
    spawning = multiprocessing.get_context("spawn")
    parent, child = spawning.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        process = spawning.Process(target=serve, args=(name, folder, child))
        process.start()
        try:
            yield HTTPConnection("127.0.0.1", parent.recv()), parent
        finally:
            process.terminate()
            process.join()


def send(connection: HTTPConnection, path: str, body: object, **headers: str) -> str:
    """Return the body of the response to a JSON request."""
    accepted = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), accepted | headers)
    response = connection.getresponse()
    text = response.read().decode()
    assert response.status == 200, text
    return text


def call_over_mcp(connection: HTTPConnection, number: int) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    headers = {"Mcp-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "reserve"}

    def request(**params: object) -> dict[str, Any]:
        named = {"name": "reserve", "arguments": {}, "_meta": meta, **params}
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": named}
        result: dict[str, Any] = json.loads(send(connection, PATH, body, **headers))["result"]
        return result

    asked = request()
    [key] = asked["inputRequests"]
    answer = {key: {"action": "accept", "content": {"row": 7}}}
    done = request(requestState=asked["requestState"], inputResponses=answer)
    assert done["content"][0]["text"] == "Row 7", done


def call_in_chat(connection: HTTPConnection, number: int) -> None:
    def run(name: str, **given: object) -> str:
        body = {"threadId": f"t{number}", "runId": name, "messages": [], **given}
        return send(connection, "/agui", body, Accept="text/event-stream")

    asked = run("r1", messages=[{"id": "m1", "role": "user", "content": "A seat, please."}])
    [question] = re.findall(r'"interrupts":\[\{"id":"([^"]*)"', asked)
    answer = {"interruptId": question, "status": "resolved", "payload": {"row": 7}}
    done = run("r2", resume=[answer])
    assert all(text in done for text in ("Row 7", "Done.")), done


CALL: dict[str, Callable[[HTTPConnection, int], None]] = {
    "chat": call_in_chat,
    "MCP": call_over_mcp,
}


def measure() -> list[Row]:
    """Run the benchmark: the servers in turns, the first turn to warm up."""
    spent: dict[str, list[float]] = {name: [] for name in SERVERS}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(served(name)) for name in SERVERS}
        for turn in range(TURNS + 1):
            for name, (connection, process) in servers.items():
                process.send("CPU")
                begun = process.recv()
                for number in range(CALLS):
                    CALL[name](connection, turn * CALLS + number)
                process.send("CPU")
                spent[name].append((process.recv() - begun) / CALLS * 1e3)
    chats, calls_alone = spent["chat"][1:], spent["MCP"][1:]
    ratio = median(one / other for one, other in zip(chats, calls_alone, strict=True))
    return [
        Row(NAME, "CPU of a call with a question: chat / MCP", ratio, goal=1.8),
        Row(NAME, "CPU of a call with a question: chat", median(chats), "ms"),
        Row(NAME, "CPU of a call with a question: MCP", median(calls_alone), "ms"),
    ]
