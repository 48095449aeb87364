"""Random programs with random timing: each round asks exactly the questions of the model.

Each program runs twice, with different delays. A quarter of them run again next to background tasks
that never end. A question may then come one round later, so a round asks a part of the model's
questions, and at least one.
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
    """One program. Separate random sources decide its tree, its answers and its delays.

    ``number``: the number of the program for this seed.
    ``beside``: whether a background task of each kind runs next to a part of the program.
    """

    def __init__(self, number: int, *, beside: bool = False) -> None:
        self.seed = seed = f"{SEED}/{number}"
        self.beside = random.Random(seed).choice(BACKGROUND) if beside else None
        self.tree = Tree("sequence", "q", (grow(random.Random(seed)), Tree("ask", "last")))

    async def run(self, timing: int) -> dict[str, str]:
        """Run the program and check every round; return all ids and fingerprints of its questions."""
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
        """Compare the questions of a round with the model's questions."""
        if self.beside is None:
            assert asked == pending, f"asked {asked}, the model says {pending}"
        else:  # a race may still run that would have ended
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
    """Choose the questions to answer: at least one, and never one that stays open for ever."""
    asks = sorted(outcome.asks, key=lambda one: one.step_id)
    open_ones = [one for one in asks if not one.request.startswith("never")]
    return choice.sample(open_ones, choice.randint(min(1, len(open_ones)), len(open_ones)))


@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
async def test_each_round_asks_the_questions_of_the_model_for_any_timing(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiescence, "SETTLE", 0.01)
    # Long enough for a question that is about to come on a busy machine: the model expects no
    # cut-off.
    monkeypatch.setattr(quiescence, "GRACE", 1.0)
    monkeypatch.setattr(quiescence, "PATIENCE", 60)
    await run_all(
        [Schedule(number) for number in range(first, min(first + BATCH, SCHEDULES))], monkeypatch
    )


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, SCHEDULES // 4, BATCH))
async def test_each_round_asks_a_question_next_to_any_background_task(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiescence, "SETTLE", 0.01)
    monkeypatch.setattr(quiescence, "GRACE", 0.01)
    # Some rounds wait that long, and a busier machine would fail, so this runs outside the gate.
    monkeypatch.setattr(quiescence, "PATIENCE", 2.0)
    numbers = range(first, min(first + BATCH, SCHEDULES // 4))
    await run_all([Schedule(number, beside=True) for number in numbers], monkeypatch)


async def run_all(schedules: list[Schedule], monkeypatch: pytest.MonkeyPatch) -> None:
    # No program here refuses its cancellation, but its threads may take long on a busy machine.
    monkeypatch.setattr(scheduler, "CANCEL_TIMEOUT", 60)
    before = asyncio.all_tasks()
    found = await asyncio.gather(*(schedule.check() for schedule in schedules))
    assert not [problem for problem in found if problem], "\n".join(filter(None, found))
    assert asyncio.all_tasks() == before, "a task has been left behind"
    assert left_timers() == [], "a timer has been left behind"


def left_timers() -> list[asyncio.TimerHandle]:
    """Return the timers of an asyncio loop; other loops do not show their timers."""
    scheduled = getattr(asyncio.get_running_loop(), "_scheduled", [])
    return [handle for handle in scheduled if not handle.cancelled()]
