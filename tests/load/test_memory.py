"""Law 9: memory stays bounded, and a call's objects are freed when the call is over.

The long run also measures the resident memory, and prints its measurements.
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
"""The packages whose objects make up a call."""
ROUNDS = times(5_000, gate=600)
SLACK = ROUNDS // 2
"""Objects of any kind that caches and pools may add during the test; fewer than there are calls."""


def alive() -> Counter[str]:
    """Return the number of objects of each kind that a call consists of."""
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
    """Run calls for at least ``rounds`` rounds; return the remaining objects and memory."""
    done = 0
    while done < rounds:
        done += await play(service)
    there = alive()
    return Measured(done, there, len(gc.get_objects()), megabytes())


def megabytes() -> float:
    """Return the currently resident memory, not its peak."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_frees_the_objects_of_finished_calls(era: str) -> None:
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
async def test_memory_stays_constant_over_many_rounds(
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
