"""One replayed ``ctx.step``, against one awaited coroutine that does nothing.

Every round replays each recorded step once, so this is the cost of a step while its call is open. The
awaited no-op is the lower bound: no coroutine costs less. The journal is in memory; reading the journal from its
text form has separate rows.

Two kinds of step: one takes and returns an ``int``, by its annotation; one without annotations
takes a text and returns a small ``dict``.
"""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch import BranchContext, tool
from anabranch._asking import Host
from anabranch._engine import Finished, Journal
from anabranch.tool import Runtime, Tool, new_journal, open_call
from bench.measure import Row, time_in_turns

NAME = "replay"
SIZES = {10: 200, 100: 60, 1_000: 15, 10_000: 5}
GOAL = 6


async def double(number: int) -> int:
    return 2 * number


async def look_up(name: str) -> Any:  # noqa: ANN401 - what a function without annotation says
    return {"name": name, "seats": 4}


@tool
async def ints(ctx: BranchContext, size: int) -> int:
    """Make ``size`` steps with numbers."""
    for number in range(size):
        await ctx.step(double, number)
    return size


@tool
async def dicts(ctx: BranchContext, size: int) -> int:
    """Make ``size`` steps with small dicts."""
    for _ in range(size):
        await ctx.step(look_up, "economy")
    return size


async def nothing(number: int) -> int:
    return number


async def run(made: Tool[int], journal: Journal, size: int) -> None:
    runtime = Runtime()

    async def nowhere(_: object) -> None:
        pass

    arguments = {"size": size}
    call = open_call(made, arguments, journal, host=Host(), runtime=runtime, sink=nowhere)
    async with call:
        assert isinstance(await call.round(), Finished)


async def measure_size(made: Tool[int], size: int, turns: int) -> tuple[float, float, float]:
    """Return the ratio to the lower bound, and the µs of one step, replayed and read from text."""
    journal = new_journal(Runtime())
    await run(made, journal, size)
    text = journal.dumps()

    async def floor() -> None:
        for number in range(size):
            await nothing(number)

    async def replay() -> None:
        await run(made, journal, size)

    async def read() -> None:
        Journal.loads(text)

    times = await time_in_turns({"floor": floor, "replay": replay, "read": read}, turns)
    micro = 1e6 / size
    return times.ratio("replay", "floor"), times.best("replay") * micro, times.best("read") * micro


async def rows() -> list[Row]:
    measured: list[Row] = []
    for what, made in (("int", ints), ("dict", dicts)):
        for size, turns in SIZES.items():
            ratio, step, read = await measure_size(made, size, turns)
            at = f"one {what} step of {size:,}"
            measured.append(Row(NAME, f"{at} / awaited no-op", ratio))
            measured.append(Row(NAME, at, step, "µs", GOAL if size > 10 else None))
            measured.append(Row(NAME, f"{at}: reading its record", read, "µs"))
    return measured


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(rows())
