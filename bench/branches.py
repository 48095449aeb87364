"""10,000 branches at the same time in one call, against 10,000 bare tasks.

A branch and a bare task do the same: each yields once to the event loop and returns a number. A branch adds
a context, a place in the call's tree with its limits, a name, and the folding of its value into the
journal. Bare tasks are the lower bound, since branches run as tasks.

``hot`` is a call whose body stays alive between questions, ``cold`` one round of a replayed call. Memory
is the peak of Python's allocations (``tracemalloc``), in a separate run.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Awaitable, Callable

from anabranch import BranchContext, run_tool, tool
from bench.measure import Row, time_in_turns

NAME = "branches"
BRANCHES = 10_000
TURNS = 7


async def work(_ctx: BranchContext, number: int) -> int:
    """Do the work of a bare task."""
    return await bare(number)


async def bare(number: int) -> int:
    await asyncio.sleep(0)
    return number


@tool
async def fan_out(ctx: BranchContext) -> int:
    """Run the branches and add their values."""
    return sum(await ctx.gather(*(ctx.branch(work, number) for number in range(BRANCHES))))


async def bare_tasks() -> int:
    return sum(await asyncio.gather(*(bare(number) for number in range(BRANCHES))))


async def hot() -> int:
    return await run_tool(fan_out, replay=False)


async def cold() -> int:
    return await run_tool(fan_out)


async def peak(run: Callable[[], Awaitable[object]]) -> float:
    """Return the KiB for each branch that ``run`` has allocated at its peak."""
    gc.collect()
    tracemalloc.start()
    try:
        await run()
        return tracemalloc.get_traced_memory()[1] / BRANCHES / 1024
    finally:
        tracemalloc.stop()


async def rows() -> list[Row]:
    contenders = {"bare": bare_tasks, "hot": hot, "cold": cold}
    times = await time_in_turns(contenders, TURNS)
    measured = [
        Row(NAME, f"time of 10,000 {kind} branches / bare tasks", times.ratio(kind, "bare"), goal=4)
        for kind in ("hot", "cold")
    ]
    for name, run in contenders.items():
        goal = None if name == "bare" else 12
        what = "bare task" if name == "bare" else f"{name} branch"
        measured.append(Row(NAME, f"peak memory of a {what}", await peak(run), "KiB", goal))
    return measured


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(rows())
