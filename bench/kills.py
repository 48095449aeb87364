"""The time until another process continues the work of a killed process: from SIGKILL to the repeated step.

Two processes of ``anabranch web`` share a store. The first runs a tool whose step reports its start and
never ends; then the first process is killed. The user calls the tool, or the model calls the tool in its turn or
in a branch of folding. A lease lasts 15 seconds: without another sign of the death, the work would wait as long.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from pathlib import Path
from time import perf_counter

import httpx2

from bench.measure import Row
from tests.chat.web import message
from tests.postgres import Server

NAME = "kills"
TURNS = 5
GOAL = 2

RUNS = ("tool", "turn", "fold")

TOOL = """
import asyncio, os, pathlib
from anabranch import BranchContext, tool

async def begin(folder: str) -> None:
    (pathlib.Path(folder) / os.environ["BENCH_PROCESS"]).touch()
    if os.environ["BENCH_PROCESS"] == "first":
        await asyncio.get_running_loop().create_future()

@tool
async def effect(ctx: BranchContext, folder: str) -> str:
    "Begin an effect."
    await ctx.step(begin, folder)
    return "done"
"""


@asynccontextmanager
async def serving(tools: Path, url: str, name: str) -> AsyncGenerator[tuple[int, str]]:
    """Start ``anabranch web``; yield the process id and the address."""
    command = [sys.executable, "-m", "anabranch", "web", str(tools), "--port", "0", "--store", url]
    command += ["--folding", "--model", f"script:{tools.with_name('model.json')}"]
    started = await asyncio.create_subprocess_exec(
        *command, stderr=asyncio.subprocess.PIPE, env={**os.environ, "BENCH_PROCESS": name}
    )
    assert started.stderr is not None
    try:
        line = ""
        while "http://" not in line:  # a line about the results of branches precedes it
            line = (await started.stderr.readline()).decode()
        yield started.pid, line.rpartition(" ")[2].strip()
    finally:
        if started.returncode is None:
            started.terminate()
        await started.communicate()


def script(folder: Path) -> list[dict[str, object]]:
    """Return the model's replies: the model calls the tool in its turn, or for a fold in a branch."""
    effect = {"name": "effect", "arguments": {"folder": str(folder)}}
    branch = {"name": "branch_create", "arguments": {"description": "work", "prompt": "turn"}}
    return [
        {"when": "fold", "tool_calls": [branch]},
        {"when": "turn", "tool_calls": [effect]},
        {"text": "Done.", "repeat": True},
    ]


async def seconds_after_a_kill(folder: Path, url: str, what: str) -> float:
    """Kill a process in mid-step; return the seconds until another process begins the step again."""
    tools = folder / "tools.py"
    tools.write_text(TOOL)
    tools.with_name("model.json").write_text(json.dumps(script(folder)))
    said = f"/effect folder={folder}" if what == "tool" else what
    async with AsyncExitStack() as stack:
        first, address = await stack.enter_async_context(serving(tools, url, "first"))
        await stack.enter_async_context(serving(tools, url, "second"))
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=address, timeout=60))
        running = asyncio.create_task(client.post("/agui", json=message(said)))
        await _begun(folder / "first")
        os.kill(first, 9)
        killed = perf_counter()
        await _begun(folder / "second")
        seconds = perf_counter() - killed
        await asyncio.wait([running])
        running.exception()  # the server has ended
    return seconds


async def _begun(mark: Path) -> None:
    async with asyncio.timeout(60):
        while not mark.exists():  # noqa: ASYNC110, ASYNC240 - other processes make it
            await asyncio.sleep(0.01)


async def _measure() -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as postgres:
        server = Server(Path(postgres), durable=True)
        server.start()
        try:
            for store, run in product(("SQLite", "Postgres"), RUNS):
                taken: list[float] = []
                for turn in range(TURNS):
                    folder = Path(place) / f"{store}-{run}-{turn}"
                    folder.mkdir()
                    on_sqlite = f"sqlite:///{folder}/calls.db"
                    url = on_sqlite if store == "SQLite" else server.new_url()
                    taken.append(await seconds_after_a_kill(folder, url, run))
                what = f"a killed process's {run} continues, {store}"
                rows.append(Row(NAME, f"{what}: median", statistics.median(taken), "s", GOAL))
                rows.append(Row(NAME, f"{what}: late at most", max(taken), "s", GOAL))
        finally:
            server.stop()
    return rows


def measure() -> list[Row]:
    """Measure kills over both stores."""
    return asyncio.run(_measure())
