"""One replayed ``ctx.step``, against one awaited coroutine that does nothing.

Every round replays each recorded step once, so this is the cost of a step while its call is open. The
awaited no-op is the lower bound: no coroutine costs less. The journal is in memory; reading the journal from its
text form has separate rows.

Each round also pins the arguments of its steps: the rows of ``an argument`` have the time for 1 KiB.

Two kinds of step: one takes and returns an ``int``, by its annotation; one without annotations
takes a text and returns a small ``dict``.
"""

from __future__ import annotations

import asyncio
from functools import partial
from timeit import repeat
from typing import Any

from pydantic import BaseModel

from anabranch import BranchContext, tool
from anabranch._asking import Host
from anabranch._engine import Finished, Journal, pin
from anabranch.tool import Runtime, Tool, new_journal, open_call
from bench.measure import Row, time_in_turns

NAME = "replay"
SIZES = {10: 200, 100: 60, 1_000: 15, 10_000: 5}
GOAL = 6


class Order(BaseModel):
    """An argument of a step."""

    item: str
    note: str


FIELDS = {"item": "x" * 512, "note": "y" * 512}
ARGUMENTS: dict[str, object] = {"a text": "x" * 1024, "a dict": FIELDS, "a model": Order(**FIELDS)}


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
    for what, argument in ARGUMENTS.items():
        best = min(repeat(partial(pin, double, [argument]), number=1_000))
        measured.append(Row(NAME, f"an argument of 1 KiB, {what}", best * 1e3, "µs", 20))
    return measured


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(rows())
