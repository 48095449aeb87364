"""Events of the chat's web application: the delay of the first token, and the throughput of one process.

Servers run in separate processes. The clients in this process are sockets that send a request as bytes and
count the received bytes. ``ours`` is ``POST /agui`` of an agent whose conversations and events are in a
SQLite file. ``bare`` is a Starlette response that streams the events of such a run, each token as one event,
without other work. Both make one token in each pass of their loop, as fast as they can; ours makes
one event of the tokens that wait for the store together.

A first token carries the time at which the model made it, on the clock that all processes share. Its delay is
the time until the client has it, one run at a time. The ratio is of the times of 200 runs at the same time. A
goal of 0.6 of the bare stream's throughput is 1.67 in these terms.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import re
import socket
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing.connection import Connection
from statistics import quantiles
from time import perf_counter_ns

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from anabranch.chat import make_chat_app
from anabranch.messages import SampleReply, SampleRequest
from anabranch.stores import open_tree_store
from anabranch.testing import MockModel, calls
from bench.measure import Row, time_in_turns

NAME = "streaming"
TURNS = 5
RUNS = 200
TOKENS = 200
FIRST = 200
"""Runs whose first token is timed."""

FRAME = re.compile(rb".+?\n\n", re.DOTALL)


async def reply(request: SampleRequest) -> AsyncIterator[str | SampleReply]:
    """Stream tokens; the first is the time, if the message asks for it."""
    [first] = [block.text for block in request.messages[-1].content if block.type == "text"]
    words = (
        [str(perf_counter_ns()), ""]
        if first == "time"
        else [f"word {each} " for each in range(TOKENS)]
    )
    for word in words:
        yield word
        await asyncio.sleep(0)
    yield calls(text="".join(words))


def ours(folder: str) -> Starlette:
    """Return the web application on a file."""
    store = open_tree_store(f"sqlite:///{folder}/chat.db")
    return make_chat_app(store, MockModel(reply), closes_store=True)


def bare(frames: list[bytes]) -> Starlette:
    """Return a response that streams the frames of a run."""

    async def body(timed: bool) -> AsyncIterator[bytes]:  # noqa: FBT001
        if timed:
            yield b'data: {"delta":"%d"}\n\n' % perf_counter_ns()
            return
        for frame in frames:
            yield frame
            await asyncio.sleep(0)

    async def run(request: Request) -> Response:
        timed = b'"time"' in await request.body()
        return StreamingResponse(body(timed), media_type="text/event-stream")

    return Starlette(routes=[Route("/agui", run, methods=["POST"])])


def serve(given: str | list[bytes], ready: Connection) -> None:
    """Serve in this process, and send the port through ``ready``."""
    logging.disable(logging.CRITICAL)
    app = ours(given) if isinstance(given, str) else bare(given)
    with socket.create_server(("127.0.0.1", 0), backlog=RUNS) as listening:
        ready.send(listening.getsockname()[1])
        config = uvicorn.Config(app, log_config=None, access_log=False, http="h11", loop="asyncio")
        uvicorn.Server(config).run(sockets=[listening])


@asynccontextmanager
async def served(given: str | list[bytes]) -> AsyncGenerator[int]:
    """Start a server in a process; yield its port."""
    spawning = multiprocessing.get_context("spawn")
    ready, child = spawning.Pipe(duplex=False)
    process = spawning.Process(target=serve, args=(given, child))
    process.start()
    child.close()  # so that reading from a dead process fails
    try:
        yield await asyncio.to_thread(ready.recv)
    finally:
        process.terminate()
        await asyncio.to_thread(process.join)


@asynccontextmanager
async def served_ours() -> AsyncGenerator[int]:
    """Start the web application on a new file; yield its port."""
    with tempfile.TemporaryDirectory() as folder:
        async with served(folder) as port:
            yield port


async def run_once(port: int, thread: str, text: str) -> tuple[bytes, int]:
    """Run once; return the body, and the time of its first token."""
    empty: dict[str, object] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    said = {"id": "m1", "role": "user", "content": text}
    sent = {"threadId": thread, "runId": f"run {thread}", "messages": [said], **empty}
    body = json.dumps(sent).encode()
    head = (
        f"POST /agui HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head.encode() + body)
    received, token = b"", 0
    while piece := await reader.read(2**16):
        received += piece
        if not token and b'"delta"' in received:
            token = perf_counter_ns()
    writer.close()
    assert b" 200 OK" in received[:20], received[:500]
    return received, token


async def run_many(port: int, turn: list[int]) -> None:
    """Run all at the same time."""
    turn[0] += 1
    names = [f"t{turn[0]}.{number}" for number in range(RUNS)]
    await asyncio.gather(*(run_once(port, name, "words") for name in names))


async def first_tokens(port: int) -> float:
    """Return the delay in milliseconds that 95 of 100 first tokens do not exceed."""
    late: list[float] = []
    for number in range(FIRST + 10):
        received, seen = await run_once(port, f"first.{number}", "time")
        given = re.search(rb'"delta":"(\d+)"', received)
        assert given is not None
        late.append((seen - int(given[1])) / 1e6)
    return quantiles(late[10:], n=20)[-1]


def frames_of(received: bytes) -> list[bytes]:
    """Return the events of a response, without its head and the lengths of its chunks."""
    body = received.partition(b"\r\n\r\n")[2]
    return FRAME.findall(re.sub(rb"\r\n[0-9a-f]+\r\n", b"", b"\r\n" + body))


def one_by_one(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the events of a run, each token as one event."""
    for frame in frames:
        start, text, rest = frame.partition(b'"delta":"')
        tokens = re.findall(rb"word \d+ ", rest) if text else [b""]
        for token in tokens:
            yield start + text + token + (rest[rest.index(b'"') :] if text else b"")


async def compare() -> list[Row]:
    """Measure both servers."""
    async with served_ours() as port:
        received, _ = await run_once(port, "sample", "words")
        frames = list(one_by_one(frames_of(received)))
        assert len(frames) > TOKENS, frames
        async with served(frames) as plain:
            late, least = await first_tokens(port), await first_tokens(plain)
            turn = [0]
            contenders = {
                "ours": partial(run_many, port, turn),
                "bare": partial(run_many, plain, turn),
            }
            times = await time_in_turns(contenders, TURNS)
    what = f"{RUNS} runs at once, {TOKENS} tokens each"
    return [
        Row(NAME, "first token after the model gave it, p95", late, "ms", 5),
        Row(NAME, "first token, p95: bare Starlette", least, "ms"),
        Row(
            NAME, f"{what}: time / a bare Starlette stream", times.ratio("ours", "bare"), "x", 1.67
        ),
        Row(NAME, f"{what}: ours", RUNS * TOKENS / times.best("ours"), "tokens/s"),
    ]


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(compare())
