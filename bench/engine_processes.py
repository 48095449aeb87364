"""The tool and the processes of ``engines.py``, and readings of their CPU time and memory."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter_ns
from typing import LiteralString, TypeAlias

import psycopg
from pydantic import BaseModel

from anabranch import BranchContext, Elicitation, tool
from anabranch.chat._web.conversations import Conversations
from anabranch.engines import Engine
from anabranch.stores import open_stores
from anabranch.testing import MockModel

__all__ = [
    "QUESTIONS",
    "OpenEngine",
    "act",
    "at_rest",
    "at_work",
    "connections",
    "conversations_at",
    "cpu_seconds",
    "journey",
    "memory",
    "server_seconds",
    "stored",
    "until_closed",
    "work_on_engine",
    "workers",
]

QUESTIONS = 4
"""Questions of a call, each followed by an effect: it has one round more."""

OpenEngine: TypeAlias = Callable[[str], Engine]
"""Opens an engine beside the store at a URL; processes are given it."""


class Reply(BaseModel):
    """The answer to each question."""

    text: str


REPLY = Elicitation("reply", Reply)


async def act(wait: float) -> int:
    """Do the effect of an answer: wait, and return the time at the end, on the clock of all processes."""
    if wait:
        await asyncio.sleep(wait)
    return perf_counter_ns()


@tool(elicits=[REPLY])
async def journey(ctx: BranchContext, questions: int = QUESTIONS, wait: float = 0.0) -> str:
    """Ask, and act on each answer; each question reports the time of the last effect."""
    acted = 0
    for _ in range(questions):
        await ctx.elicit(REPLY, str(acted))
        acted = await ctx.step(act, wait)
    return str(acted)


@asynccontextmanager
async def conversations_at(
    url: str, open_engine: OpenEngine | None, concurrency: int | None
) -> AsyncGenerator[Conversations]:
    """Return the conversations of a chat on the store at ``url``; this process works on ``concurrency`` runs."""
    engine = None if open_engine is None else open_engine(url)
    calls, trees = open_stores(url)
    conversations = Conversations(
        trees, MockModel(lambda _: "unused"), [journey], calls=calls, engine=engine
    )
    try:
        async with conversations.running(concurrency):
            yield conversations
    finally:
        if engine is not None:
            await engine.close()
        await trees.close()


def work_on_engine(
    url: str, open_engine: OpenEngine, concurrency: int, connection: Connection
) -> None:
    """The main function of a worker of ours, as in ``anabranch worker``."""

    async def work() -> None:
        async with conversations_at(url, open_engine, concurrency):
            await until_closed(connection)

    asyncio.run(work())


async def until_closed(connection: Connection) -> None:
    """Report to the parent that this process is ready, and wait until the parent closes the connection."""
    connection.send(None)
    with suppress(EOFError):
        await asyncio.to_thread(connection.recv)


@asynccontextmanager
async def workers(number: int, work: Callable[[Connection], None]) -> AsyncGenerator[list[int]]:
    """Start processes that run ``work``; yield their ids when all are ready."""
    spawning = multiprocessing.get_context("spawn")
    pipes = [spawning.Pipe() for _ in range(number)]
    processes = [spawning.Process(target=work, args=(theirs,)) for _, theirs in pipes]
    for process in processes:
        process.start()
    for _, theirs in pipes:
        theirs.close()  # so that reading from a dead process fails
    try:
        for ours, _ in pipes:
            await asyncio.to_thread(ours.recv)
        yield [process.pid or 0 for process in processes]
    finally:
        for ours, _ in pipes:
            ours.close()
        for process in processes:
            await asyncio.to_thread(process.join)


@contextmanager
def at_rest(pids: Sequence[int]) -> Generator[None]:
    """Stop these processes inside the block, so that their searches for work take no CPU time."""
    _send(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        _send(pids, signal.SIGCONT)


@contextmanager
def at_work(pids: Sequence[int]) -> Generator[None]:
    """Continue stopped processes inside the block."""
    _send(pids, signal.SIGCONT)
    try:
        yield
    finally:
        _send(pids, signal.SIGSTOP)


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


# -- what it takes -------------------------------------------------------------------------


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time of these processes, and of their children that have ended."""
    ticks = sum(int(field) for pid in pids for field in _stat(pid)[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def server_seconds(folder: Path) -> float:
    """Return the CPU time of the Postgres server in a folder, with its child processes."""
    first = (folder / "data" / "postmaster.pid").read_text().split()[0]
    spent = cpu_seconds([int(first)])
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            if _stat(int(entry.name))[1] == first:
                spent += cpu_seconds([int(entry.name)])
    return spent


def memory(pid: int) -> int:
    """Return the bytes of memory of a process."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def connections(url: str) -> int:
    """Return the number of connections of a Postgres server, without the connection that asks."""
    return _number(url, "SELECT count(*) - 1 FROM pg_stat_activity WHERE datname IS NOT NULL")


def stored(url: str) -> int:
    """Return the bytes of the tables of a store in Postgres, with their indexes."""
    return _number(
        url,
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
        " WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace",
    )


def _number(url: str, query: LiteralString) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute(query).fetchone()
    return 0 if found is None else int(found[0])


def _stat(pid: int) -> list[str]:
    """Return the kernel's fields about a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
