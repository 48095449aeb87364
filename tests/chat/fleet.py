"""The files and the processes of ``anabranch web`` and ``anabranch worker`` over one store."""

import asyncio
import json
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psycopg

from tests.chat.web import events_in, types_of

TOOLS = '''
import os
import signal
import time
from pathlib import Path

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool

LEDGER = Path(__file__).with_name("ledger")


class Seat(BaseModel):
    row: int


def die(when: str) -> None:
    """Kill this process where a file says so."""
    fatal = LEDGER.with_name(when)
    if fatal.exists():
        fatal.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def note(what: str, key: str) -> str:
    """Make one effect, when no file holds it up any more."""
    while LEDGER.with_name(f"held-{what}").exists():
        time.sleep(0.01)
    die(f"before-{what}")
    with LEDGER.open("a", encoding="utf-8") as file:
        file.write(f"{what} {key}\\n")
    die(f"after-{what}")
    return what


@tool
async def travel(ctx: BranchContext, to: str, asks: bool = True) -> str:
    """Reserve, ask, and book."""
    await ctx.step(note, f"reserve-{to}", ctx.idempotency_key)
    await ctx.log("info", f"reserved {to}")
    row = "any"
    if asks:
        answer = await ctx.elicit(Seat, f"Which row to {to}?")
        row = str(answer.content.row) if isinstance(answer, Accepted) else answer.action
    await ctx.step(note, f"book-{to}", ctx.idempotency_key)
    return f"booked {to} in row {row}"
'''

FORK = {"prompts": ["take Rome", "take Oslo", "stay"], "allow_work": True}
ONE_BRANCH = {"prompts": ["go"], "allow_work": True}

SCRIPT: list[dict[str, Any]] = [
    {"when": "branches completed", "text": "All is done."},
    {"when": "booked", "text": "It is booked.", "repeat": True},
    {"when": "take Rome", "tool_calls": [{"name": "travel", "arguments": {"to": "Rome"}}]},
    {"when": "take Oslo", "tool_calls": [{"name": "travel", "arguments": {"to": "Oslo"}}]},
    {"when": "stay", "text": "I stay."},
    {"when": "fork", "tool_calls": [{"name": "branch_self", "arguments": FORK}]},
    {"when": "alone", "tool_calls": [{"name": "branch_self", "arguments": ONE_BRANCH}]},
    {"when": "go", "tool_calls": [{"name": "travel", "arguments": {"to": "Bonn", "asks": False}}]},
]


async def until_ended(client: httpx2.AsyncClient, after: int, ends: int) -> list[str]:
    """Return the events of a thread after ``position``, until the given number of runs has ended."""
    text = ""
    async with client.stream("GET", f"/threads/t1/events?after={after}") as response:
        async for piece in response.aiter_text():
            text += piece
            whole = text[: text.rindex("\n\n") + 2] if "\n\n" in text else ""
            if types_of(events_in(whole)).count("RUN_FINISHED") == ends:
                return whole.split("\n\n")[:-1]
    raise AssertionError(text)


class Fleet:
    """Web processes and workers over the same store, with DBOS between them.

    Their model follows a script, unless ``model`` is another.
    """

    def __init__(self, folder: Path, url: str, model: str = "") -> None:
        self.folder = folder
        self.url = url
        self.model = model or f"script:{folder / 'script.json'}"
        (folder / "tools.py").write_text(TOOLS)
        (folder / "script.json").write_text(json.dumps(SCRIPT))

    @asynccontextmanager
    async def _process(self, command: str, *options: str) -> AsyncGenerator[tuple[Process, str]]:
        """Start a process and wait for its first line; a process that still runs at the end is killed."""
        given = ["--store", self.url, "--engine", "dbos"]
        given += ["--model", self.model, *options]
        started = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "anabranch", command, str(self.folder / "tools.py")),
            *given,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert started.stderr is not None
            yield started, (await started.stderr.readline()).decode()
        finally:
            if started.returncode is None:
                started.kill()
            await started.communicate()

    @asynccontextmanager
    async def web(self) -> AsyncGenerator[tuple[Process, httpx2.AsyncClient]]:
        async with self._process("web", "--port", "0") as (process, line):
            address = line.rpartition(" ")[2].strip()
            async with httpx2.AsyncClient(base_url=address, timeout=120) as client:
                yield process, client

    @asynccontextmanager
    async def worker(self, concurrency: int = 4) -> AsyncGenerator[Process]:
        options = ("--concurrency", str(concurrency), "--grace", "120")
        async with self._process("worker", *options) as (process, line):
            assert line == f"The worker takes runs, {concurrency} at a time.\n"
            yield process

    def let_leases_run_out(self) -> None:
        """End the leases of killed processes, as the passing of time would."""
        with psycopg.connect(self.url, autocommit=True) as store:
            store.execute("UPDATE anabranch_call SET leased_until = 1 WHERE owner IS NOT NULL")
            store.execute("UPDATE anabranch_run SET due = 1 WHERE owner IS NOT NULL")

    def effects(self) -> list[str]:
        lines = (self.folder / "ledger").read_text().splitlines()
        return [line.partition(" ")[0] for line in lines]
