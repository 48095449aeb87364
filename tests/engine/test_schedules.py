"""Random programs under random timing: each round asks exactly what the model says.

Each program is run twice, with different delays. A quarter as many run again beside tasks that never
end. What a task in the background is about to ask may then come a round later, so that a round asks a
part of what the model says, and at least something.
"""

import asyncio
import random
from typing import Any

import pytest

from anabranch._engine import Branch, Journal, Waiting, quiescence, scheduler
from tests.engine.harness import World, loudly
from tests.engine.loops import LOOPS
from tests.engine.schedules import BACKGROUND, Interpreter, Tree, expected, grow, value_of
from tests.patience import PATIENCE
from tests.randomised import SEED, times

SCHEDULES = times(400, gate=50)
BATCH = 25


@pytest.fixture(params=LOOPS)  # not in debug mode, in which programs take four times as long
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {**LOOPS[request.param], "debug": False}


class Schedule:
    """One program. Its tree, its answers and its delays each have dice of their own.

    ``number``: which of the programs of this seed it is.
    ``beside``: a background task of each kind runs beside a part of it.
    """

    def __init__(self, number: int, *, beside: bool = False) -> None:
        self.seed = seed = f"{SEED}/{number}"
        self.beside = random.Random(seed).choice(BACKGROUND) if beside else None
        self.tree = Tree("sequence", "q", (grow(random.Random(seed)), Tree("ask", "last")))

    async def run(self, timing: int) -> dict[str, str]:
        """Run it, checking every round; return all ids and fingerprints of its questions."""
        choice = random.Random(f"answers {self.seed}")
        delays = Interpreter(random.Random(f"delays {self.seed} {timing}"))
        answered: set[str] = set()
        prints: dict[str, str] = {}
        world = World()

        async def body(_: Branch) -> Any:
            if self.beside is None:
                return await delays.run(self.tree)
            return await delays.beside(self.beside, self.tree)

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
            self.compare(asked, sorted(pending))
            prints |= {one.step_id: one.fingerprint for one in outcome.asks}
            journal = Journal.loads(journal.dumps())
            given = {one.step_id: loudly(one.request) for one in some(choice, outcome)}
            answered |= {one.request for one in outcome.asks if one.step_id in given}
            journal.answer(given)

    def compare(self, asked: list[str], pending: list[str]) -> None:
        """Compare what a round has asked with what the model says."""
        if self.beside is None:
            assert asked == pending, f"asked {asked}, the model says {pending}"
        else:  # a race may still go on that would have ended
            unknown = {one for one in asked if not one.startswith("never")} - set(pending)
            assert not unknown, f"asked {asked}, the model says {pending}"
            assert asked, f"asked nothing of {pending}"

    async def check(self) -> str | None:
        try:
            async with asyncio.timeout(PATIENCE):
                first, second = await self.run(1), await self.run(2)
            both = first.keys() & second.keys() if self.beside else first.keys() | second.keys()
            differ = {one for one in both if first.get(one) != second.get(one)}
            assert not differ, f"ids differ: {differ} of {first} and {second}"
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - reported with its seed
            return (
                f"seed {self.seed} ({self.beside}): {type(error).__name__}: {error}\n  {self.tree}"
            )
        return None


def some(choice: random.Random, outcome: Waiting) -> list[Any]:
    """Choose which of the questions are answered: at least one, and never the eternal ones."""
    asks = sorted(outcome.asks, key=lambda one: one.step_id)
    open_ones = [one for one in asks if not one.request.startswith("never")]
    return choice.sample(open_ones, choice.randint(min(1, len(open_ones)), len(open_ones)))


@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
async def test_each_round_asks_the_questions_of_the_model_whatever_the_timing(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiescence, "SETTLE", 0.01)
    # Long enough for what is about to ask, on a busy machine: the model knows of nothing cut off.
    monkeypatch.setattr(quiescence, "GRACE", 1.0)
    monkeypatch.setattr(quiescence, "PATIENCE", 60)
    await run_all(
        [Schedule(number) for number in range(first, min(first + BATCH, SCHEDULES))], monkeypatch
    )


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, SCHEDULES // 4, BATCH))
async def test_each_round_asks_something_whatever_goes_on_beside_it(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiescence, "SETTLE", 0.01)
    monkeypatch.setattr(quiescence, "GRACE", 0.01)
    # Some rounds wait that long, and a machine that is busy for longer would fail: not in the gate.
    monkeypatch.setattr(quiescence, "PATIENCE", 2.0)
    numbers = range(first, min(first + BATCH, SCHEDULES // 4))
    await run_all([Schedule(number, beside=True) for number in numbers], monkeypatch)


async def run_all(schedules: list[Schedule], monkeypatch: pytest.MonkeyPatch) -> None:
    # No program here refuses to be cancelled; on a busy machine its threads may still take long.
    monkeypatch.setattr(scheduler, "CANCEL_TIMEOUT", 60)
    before = asyncio.all_tasks()
    found = await asyncio.gather(*(schedule.check() for schedule in schedules))
    assert not [problem for problem in found if problem], "\n".join(filter(None, found))
    assert asyncio.all_tasks() == before, "a task has been left behind"
    assert left_timers() == [], "a timer has been left behind"


def left_timers() -> list[asyncio.TimerHandle]:
    """Those of asyncio's own loop; others do not show them."""
    scheduled = getattr(asyncio.get_running_loop(), "_scheduled", [])
    return [handle for handle in scheduled if not handle.cancelled()]
