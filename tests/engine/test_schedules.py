"""Random programs under random timing: each round asks exactly what the model says.

``ANABRANCH_SCHEDULES`` is the number of programs; each is run twice, with different delays.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest

from anabranch._engine import Branch, Journal, Waiting, quiescence, scheduler
from tests.engine.harness import World, loudly
from tests.engine.schedules import Interpreter, Tree, expected, grow, value_of

SCHEDULES = int(os.environ.get("ANABRANCH_SCHEDULES", "400"))
BATCH = 25


class Schedule:
    """One program. Its tree, its answers and its delays each have dice of their own."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.tree = Tree("sequence", "q", (grow(random.Random(seed)), Tree("ask", "last")))

    async def run(self, timing: int) -> dict[str, str]:
        """Run it, checking every round; return all ids and fingerprints of its questions."""
        choice = random.Random(f"answers {self.seed}")
        delays = Interpreter(random.Random(f"delays {self.seed} {timing}"))
        answered: set[str] = set()
        prints: dict[str, str] = {}
        world = World()

        async def body(_: Branch) -> Any:
            return await delays.run(self.tree)

        journal = world.journal()
        while True:
            async with world.call(body, journal) as call:
                outcome = await call.round()
            done, pending = expected(self.tree, answered)
            if not isinstance(outcome, Waiting):
                assert done, f"finished early, {pending} not asked"
                assert outcome.value == value_of(self.tree)
                return prints
            asked = sorted(one.request for one in outcome.asks)
            assert asked == sorted(pending), f"asked {asked}, the model says {sorted(pending)}"
            prints |= {one.step_id: one.fingerprint for one in outcome.asks}
            journal = Journal.loads(journal.dumps())
            given = {one.step_id: loudly(one.request) for one in some(choice, outcome)}
            answered |= {one.request for one in outcome.asks if one.step_id in given}
            journal.answer(given)

    async def check(self) -> str | None:
        """Return what is wrong, or nothing."""
        try:
            async with asyncio.timeout(60):
                first, second = await self.run(1), await self.run(2)
            assert first == second, f"ids differ: {first} and {second}"
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - reported with its seed
            return f"seed {self.seed}: {type(error).__name__}: {error}\n  {self.tree}"
        return None


def some(choice: random.Random, outcome: Waiting) -> list[Any]:
    """Choose which of the questions are answered: at least one, and never the eternal ones."""
    asks = sorted(outcome.asks, key=lambda one: one.step_id)
    open_ones = [one for one in asks if not one.request.startswith("never")]
    return choice.sample(open_ones, choice.randint(1, len(open_ones)))


@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
async def test_each_round_asks_what_the_model_says_whatever_the_timing(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiescence, "SETTLE", 0.01)
    # No program here refuses to be cancelled; on a busy machine its threads may still take long.
    monkeypatch.setattr(scheduler, "CANCEL_TIMEOUT", 60)
    before = asyncio.all_tasks()
    seeds = range(first, min(first + BATCH, SCHEDULES))
    found = await asyncio.gather(*(Schedule(seed).check() for seed in seeds))
    assert not [problem for problem in found if problem], "\n".join(filter(None, found))
    assert asyncio.all_tasks() == before, "a task has been left behind"
    assert left_timers() == [], "a timer has been left behind"


def left_timers() -> list[asyncio.TimerHandle]:
    loop: Any = asyncio.get_running_loop()
    return [handle for handle in loop._scheduled if not handle.cancelled()]


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_grows_the_same_program_again(seed: int) -> None:
    assert Schedule(seed).tree == Schedule(seed).tree != Schedule(seed + 1).tree
