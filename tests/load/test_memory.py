"""Law 9: nothing grows without bound. What a call needed is gone when it is over.

The long run measures the resident memory, too, and prints what was measured.
"""

import asyncio
import gc
import os
import resource
from collections import Counter
from pathlib import Path
from typing import NamedTuple, cast

import pytest

from anabranch._durable import CallService
from anabranch.mcp import Durability
from anabranch.stores import open_store
from anabranch.tool import Runtime
from tests.load.calls import busy, play
from tests.mcp.harness import ERAS, Answers, accept, connected, echo, serving
from tests.randomised import LONG, times

OF_A_CALL = ("anabranch._engine.", "anabranch._durable.")
"""The rooms whose objects a call is made of."""
ROUNDS = times(5_000, gate=600)
SLACK = ROUNDS // 2
"""Objects of any kind that caches and pools may add meanwhile; fewer than there are calls."""


def alive() -> Counter[str]:
    """How many objects there are of each kind that a call is made of."""
    gc.collect()
    there = cast("list[object]", gc.get_objects())
    kinds = [type(thing) for thing in there]
    return Counter(
        kind.__name__
        for kind in kinds
        if str(kind.__module__).startswith(OF_A_CALL) or issubclass(kind, asyncio.Task)
    )


class Measured(NamedTuple):
    rounds: int
    alive: Counter[str]
    tracked: int
    megabytes: float


async def measure(service: CallService, rounds: int) -> Measured:
    """Play calls for at least so many rounds; return what is there then."""
    done = 0
    while done < rounds:
        done += await play(service)
    there = alive()
    return Measured(done, there, len(gc.get_objects()), megabytes())


def megabytes() -> float:
    """The memory that is resident now, not at its peak."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_holds_nothing_of_calls_that_are_over(era: str) -> None:
    answers = Answers(elicit=lambda _: accept(on=True), sample=echo)
    async with connected(serving(busy), era, answers) as client:
        for _ in range(20):
            await client.call_tool("busy", {"number": 1})
        answers.asked.clear()
        answers.prompted.clear()
        before = alive()
        for _ in range(40):
            await client.call_tool("busy", {"number": 1})
        assert alive() == before


@pytest.mark.parametrize("stored", [False, True])
async def test_memory_is_flat_however_many_rounds_there_were(
    stored: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(f"sqlite:///{tmp_path}/calls.db?synchronous=normal")
    service = CallService(Runtime(), Durability(store) if stored else None)
    few = await measure(service, ROUNDS // 10)
    many = await measure(service, ROUNDS - few.rounds)
    with capsys.disabled():
        if LONG:
            os.write(2, f"\n{few}\n{many}\n".encode())
    assert many.alive == few.alive
    assert many.tracked < few.tracked + SLACK
    assert not LONG or many.megabytes < 1.1 * few.megabytes
    await store.close()
