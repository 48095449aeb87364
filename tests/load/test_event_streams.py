"""Many readers of one conversation, and readers that stop reading: memory stays bounded."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

from anabranch.chat import make_chat_app
from anabranch.messages import SampleReply
from anabranch.stores import open_tree_store
from anabranch.testing import MockModel, calls
from tests.chat.web import message, run, serving
from tests.patience import PATIENCE
from tests.randomised import LONG

READERS = 1000 if LONG else 50
STALLED = 50
WORD = "x" * 10_000
WORDS = 300


async def words() -> AsyncIterator[str | SampleReply]:
    for _ in range(WORDS):
        yield WORD
        await asyncio.sleep(0)
    yield calls(text="done")


def model() -> MockModel:
    return MockModel(lambda request: words() if "much" in str(request.messages[-1]) else "Fine.")


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[tuple[str, httpx2.AsyncClient]]:
    store = open_tree_store(f"sqlite:///{folder}/chat.db?synchronous=normal")
    app = make_chat_app(store, model(), closes_store=True)
    async with serving(app) as url, httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        await client.post("/threads", json={"id": "t1"})
        yield url, client


class Reader:
    """A connection that follows the thread, and reads only on request."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])

    async def open(self) -> None:
        # A small receive buffer makes the stalled reader slow the server's writes earlier.
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=2**12
        )
        head = f"GET /threads/t1/events?after=0 HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n\r\n"
        self._writer.write(head.encode())
        assert b" 200 OK" in await self._reader.readline()
        while await self._reader.readline() != b"\r\n":
            pass

    async def ids(self, last: int) -> list[int]:
        """Return the numbers of the received events, up to ``last``."""
        found: list[int] = []
        while not found or found[-1] < last:
            line = await self._line()
            assert b"anabranch.missed" not in line
            if line.startswith(b"id: "):
                found.append(int(line[4:].partition(b"-")[0]))
        return found

    async def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            try:
                line += await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                line += await self._reader.readexactly(error.consumed)
        return line

    async def close(self) -> None:
        self._writer.close()


async def test_all_readers_of_one_conversation_get_every_event(tmp_path: Path) -> None:
    async with server(tmp_path) as (url, client):
        readers = [Reader(url) for _ in range(READERS)]
        for reader in readers:
            await reader.open()
        sent = len(await run(client, message("hello")))
        found = await asyncio.gather(*(reader.ids(sent) for reader in readers))
        assert {tuple(ids) for ids in found} == {tuple(range(1, sent + 1))}
        for reader in readers:
            await reader.close()


async def test_stalled_readers_delay_no_other_reader_and_take_little_memory(tmp_path: Path) -> None:
    """Stalled readers keep only one batch and their sockets' buffers; the store has the other events."""
    async with server(tmp_path) as (url, client):
        readers = [Reader(url) for _ in range(STALLED)]
        for reader in readers:
            await reader.open()
        await run(client, message("hello", run="r0"))
        gc.collect()
        tracemalloc.start()
        # The stalled readers do not read during this run.
        events = await run(client, message("much", run="r1"))
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        streamed = WORDS * len(WORD)
        assert sum(len(each.get("delta", "")) for each in events) == streamed
        del events
        assert grown < STALLED * streamed / 8
        last = int((await client.get("/threads/t1/tree")).json()["position"].partition("-")[0])
        for reader in readers[:10]:
            assert await reader.ids(last) == list(range(1, last + 1))
        for reader in readers:
            await reader.close()
