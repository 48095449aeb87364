"""A conversation on SQLite: reading a long path, and adding a node.

Reading: the messages of a path of 1,000 nodes, one of a hundred that grew concurrently in a thread
of 100,000, against the driver's rows of the same nodes and results, read by one statement. The rows
are the lower bound: they are not decoded, and no other thread fetches them. The decoding of their JSON, which
every reader needs, has a separate row.

Writing: one node below another, against one bare ``INSERT`` of the same row by the driver, in a separate
transaction, into the same table of another file with the same durability: both wait for the disk once. The
store also finds the parent, refuses a node in the wrong place, and stores pending results. The store works in a
thread, since an event loop cannot wait for a disk; so another row has the bare ``INSERT`` in a thread.

Size: the bytes of an image of 400 kB in a node, a tool's result, the stored event that begins a run, and the
journal of a tool that samples.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from base64 import b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

from anabranch import BranchContext, tool
from anabranch._asking import Host
from anabranch._engine import Answer, Finished
from anabranch.chat._web.run_input import Message, started
from anabranch.messages import (
    Block,
    FileBlock,
    ImageBlock,
    SampleReply,
    TextBlock,
    ToolUseBlock,
    Usage,
)
from anabranch.stores import open_tree_store
from anabranch.stores._tree_rows import node_row, result_row
from anabranch.stores._tree_tables import PATH
from anabranch.tool import Runtime, new_journal, open_call
from anabranch.tree import Kind, Node, Result, Thread, TreeStore, project, store_files
from bench.measure import Row, Times, time_in_turns
from bench.state import nowhere

NAME = "tree"
LINES, LENGTH = 100, 1_000
READS, APPENDS = 15, 9
AT_ONCE = 50
KINDS: Sequence[Kind] = ("user", "assistant", "results", "assistant")
SQL = str(PATH.statement).replace(":this", "?")
INSERT = """
    INSERT INTO anabranch_node (id, thread, parent, kind, content, created_at, usage, data)
    VALUES (?, 1, ?, ?, ?, ?, ?, ?)
"""


def one(line: int, depth: int) -> Node:
    """Return a node of a path of turns, each of four nodes with one tool use."""
    kind = KINDS[depth % 4]
    text = TextBlock(text=f"Turn {depth} of line {line}: " + "something is said. " * 10)
    use = ToolUseBlock(id=f"toolu_{depth}", name="search", input={"query": f"line {line}"})
    content: dict[int, tuple[Block, ...]] = {0: (text,), 1: (text, use), 2: (), 3: (text,)}
    usage = Usage(input_tokens=900, output_tokens=80) if kind == "assistant" else None
    parent = f"node_{line}_{depth - 1}" if depth else None
    return Node(f"node_{line}_{depth}", "t", parent, kind, content[depth % 4], 1e9, usage)


def result_of(node: Node) -> Result:
    return Result(node.id, node.tool_uses[0].id, (TextBlock(text="something is found. " * 10),))


async def fill(store: TreeStore) -> None:
    await store.create_thread(Thread("t", 1e9))
    for depth in range(LENGTH):
        nodes = [one(line, depth) for line in range(LINES)]
        await store.append(nodes, results=[result_of(node) for node in nodes if node.tool_uses])


def connect(file: Path) -> sqlite3.Connection:
    """Return the driver's own connection, with the store's durability."""
    connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


async def reading(store: TreeStore, file: Path) -> Times:
    connection = connect(file)
    last = f"node_{LINES // 2}_{LENGTH - 1}"

    async def rows() -> list[tuple[bytes | None, ...]]:
        return connection.execute(SQL, (last.encode(),)).fetchall()

    async def read_json() -> None:
        for row in await rows():
            for column in (4, 6, 7, 10, 12):  # content, usage, data; a result's content, pending
                json.loads(row[column] or b"null")

    async def messages() -> None:
        path = await store.path(last)
        assert len(project(path.nodes, path.results)) == LENGTH

    ways = {"rows": rows, "json": read_json, "messages": messages}
    times = await time_in_turns(ways, READS)
    connection.close()
    return times


async def writing(store: TreeStore, file: Path) -> Times:
    connection, numbers = connect(file), count()
    names = ("new_id", "parent", "new_kind", "new_content", "new_created_at", "new_usage")

    def new() -> Node:
        node = one(0, LENGTH + 3)
        return Node(f"new_{next(numbers)}", "t", f"node_0_{LENGTH - 1}", *_rest(node))

    async def append() -> None:
        for _ in range(AT_ONCE):
            await store.append([new()])

    def bare(node: Node) -> None:
        row: dict[str, Any] = {**node_row(node), "parent": (LENGTH - 1) * LINES + 1}
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(INSERT, (*(row[name] for name in names), None))
        connection.execute("COMMIT")

    async def insert() -> None:
        for _ in range(AT_ONCE):
            bare(new())

    async def insert_in_thread() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(AT_ONCE):
            await loop.run_in_executor(thread, bare, new())

    with ThreadPoolExecutor(1) as thread:
        ways = {"insert": insert, "in_thread": insert_in_thread, "append": append}
        times = await time_in_turns(ways, APPENDS)
    connection.close()
    return times


async def image_bytes() -> dict[str, int]:
    """Return the bytes of an image in each record of a conversation."""
    store = open_tree_store("memory:")
    await store.create_thread(Thread("t", 1e9))
    data = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(400_000)).decode()
    image, text = ImageBlock(data=data, mime_type="image/png"), TextBlock(text="Which colour?")
    asked: tuple[Block, ...] = (image, text)
    content = await store_files(store, "t", asked[:1])
    await store.close()
    files = tuple(block for block in content if isinstance(block, FileBlock))
    said, bare = (started("t", "r", Message("", files=each)) for each in (files, ()))
    sizes = [len(each.event) for each in (said, bare)]
    row = node_row(Node("n", "t", None, "user", content, 1e9))
    returned = result_row(Result("n", "u", files))
    journals = [await journal_bytes(each) for each in (asked, asked[1:])]
    return {
        "a node": len(row["new_content"]),
        "a result of a tool": len(returned["new_content"]),
        "a run's event": sizes[0] - sizes[1],
        "the journal of a tool that samples with it": journals[0] - journals[1],
    }


async def journal_bytes(prompt: Sequence[Block]) -> int:
    """Return the bytes of the journal of a tool that asks a model with ``prompt``."""

    @tool
    async def look(ctx: BranchContext) -> str:
        """Look."""
        return (await ctx.sample(prompt)).text

    journal = new_journal(Runtime())
    async with open_call(look, {}, journal, host=Host(), runtime=Runtime(), sink=nowhere) as call:
        outcome = await call.round()
    assert not isinstance(outcome, Finished)
    reply = SampleReply(content=(TextBlock(text="Black."),)).model_dump(mode="json")
    journal.answer({ask.step_id: Answer(reply) for ask in outcome.asks})
    return len(journal.dumps())


def _rest(node: Node) -> tuple[Kind, tuple[Block, ...], float, Usage | None]:
    return node.kind, node.content, node.created_at, node.usage


async def rows() -> list[Row]:
    # Beside this file, not in the directory for temporary files, which may be in memory.
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        files = [Path(folder) / name for name in ("ours.db", "bare.db")]
        stores = [open_tree_store(f"sqlite:///{file}") for file in files]
        for store in stores:
            await fill(store)
        read = await reading(stores[0], files[0])
        await stores[1].close()
        written = await writing(stores[0], files[1])
        await stores[0].close()
    held = await image_bytes()
    path, appended = "a path of 1,000 nodes among 100,000 as messages", "one node appended"
    return [
        Row(NAME, f"{path} / its rows", read.ratio("messages", "rows"), goal=1.5),
        Row(NAME, f"{path} / its rows and their JSON", read.ratio("messages", "json")),
        Row(NAME, f"{appended} / a bare insert", written.ratio("append", "insert"), goal=1.3),
        Row(NAME, f"{appended} / a bare insert in a thread", written.ratio("append", "in_thread")),
        Row(NAME, path, read.best("messages") * 1e3, "ms"),
        Row(NAME, appended, written.best("append") / AT_ONCE * 1e3, "ms"),
        *(
            Row(NAME, f"an image of 400 kB in {each}", size, "bytes", goal=200)
            for each, size in held.items()
        ),
    ]


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(rows())
