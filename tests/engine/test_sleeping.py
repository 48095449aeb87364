"""Sleeps, which the clock ends: when a round waits for the clock, and when the call waits between rounds."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from anabranch._aio import Timer, run_until
from anabranch._engine import Answer, Branch, Finished, Journal, Stopped, Waiting
from anabranch._engine.open_asks import hold_sleeps, is_asleep, wakes_at
from anabranch.errors import BranchTimeoutError
from anabranch.testing import ManualClock
from tests.engine.clocks import Obliging
from tests.engine.harness import (
    World,
    ask,
    branch,
    first_round,
    gather,
    hot,
    now,
    race,
    rounds,
    sleep_until,
)

START = 1_000_000_000.0
HOUR = 3600.0
Body = Callable[[Branch], Coroutine[Any, Any, Any]]


async def an_hour(_: Branch) -> str:
    await sleep_until(START + HOUR)
    return "awake"


async def next_round(
    body: Body, world: World, journal: Journal, answers: dict[str, Answer] | None = None
) -> Finished[Any] | Waiting:
    journal.answer(answers or {})
    async with world.call(body, journal) as call:
        return await call.round()


# -- in a round, or alive --------------------------------------------------------------------


async def test_a_live_call_waits_by_the_clock() -> None:
    world = World(clock=Obliging())
    assert await hot(an_hour, world=world) == "awake"
    assert world.clock.now() == START + HOUR


async def test_a_sleep_until_a_past_time_ends_immediately() -> None:
    async def body(_: Branch) -> float:
        await sleep_until(START)
        return now()

    world = World()
    async with world.call(body, world.journal()) as call:
        assert await call.round() == Finished(START)


async def test_a_round_waits_for_sleeps_that_end_within_its_patience() -> None:
    async def body(_: Branch) -> float:
        await gather([sleep_until(START + 0.5), sleep_until(START + 1.5)])
        return now()

    world = World(clock=Obliging())
    async with world.call(body, world.journal()) as call:
        assert await call.round() == Finished(START + 1.5)


async def test_a_round_does_not_wait_longer_for_a_stopped_clock() -> None:
    async def body(_: Branch) -> None:
        await sleep_until(START + 0.005)

    journal = await first_round(body, world=World(patience=0.01))
    assert wakes_at(journal) == START + 0.005


async def test_an_early_timer_is_set_again() -> None:
    class Hasty(Obliging):
        hasty = True

        def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
            if self.hasty:
                self.hasty = False
                asyncio.get_running_loop().call_soon(callback)
                return super().call_at(when, lambda: None)
            return super().call_at(when, callback)

    world = World(clock=Hasty())
    assert await hot(an_hour, world=world) == "awake"
    assert world.clock.now() == START + HOUR


async def test_a_sleep_cancelled_at_its_end_stays_cancelled() -> None:
    world = World()

    async def body(_: Branch) -> bool:
        sleeping = asyncio.ensure_future(sleep_until(START + HOUR))
        await asyncio.sleep(0)
        sleeping.cancel()
        world.clock.advance(HOUR)
        await asyncio.wait({sleeping})
        return sleeping.cancelled()

    assert await hot(body, world=world)


# -- between rounds --------------------------------------------------------------------------


async def test_a_call_that_sleeps_longer_waits_in_its_journal() -> None:
    world = World()
    journal = world.journal()
    assert await next_round(an_hour, world, journal) == Waiting(())
    journal = Journal.loads(journal.dumps())
    assert journal.pending == {"t/sleep.1": ("sleep", repr(START + HOUR))}
    assert is_asleep(journal)
    assert wakes_at(journal) == START + HOUR
    world.clock.advance(HOUR - 200)
    assert await next_round(an_hour, world, journal) == Waiting(())
    world.clock.advance(200)
    assert await next_round(an_hour, world, journal) == Finished("awake")
    assert not is_asleep(journal)
    assert wakes_at(journal) is None


async def test_only_the_clock_ends_a_sleep() -> None:
    world = World()
    journal = world.journal()
    await next_round(an_hour, world, journal)
    forged = {"t/sleep.1": Answer(None)}
    assert journal.to_open(forged) == {}
    assert await next_round(an_hour, world, journal, forged) == Waiting(())

    async with world.call(an_hour, world.journal()) as call:
        driving = asyncio.ensure_future(call.drive(_never))
        for _pass in range(20):
            await asyncio.sleep(0)
        assert call.journal.pending
        assert not call.answer("t/sleep.1", Answer(None))
        world.clock.advance(HOUR)
        assert await driving == "awake"


async def _never(asked: object) -> Answer:
    raise AssertionError(asked)


async def test_a_replay_stops_at_a_sleep() -> None:
    world = World()
    journal = await first_round(an_hour, world=world)
    world.clock.advance(2 * HOUR)
    async with world.call(an_hour, journal) as call:
        assert await call.replay() == Stopped(("t/sleep.1",))


async def test_the_deadline_of_a_branch_ends_a_sleep_in_it() -> None:
    async def body(_: Branch) -> Any:
        await branch(too_short, timeout=1000)

    async def too_short(_: Branch) -> Any:
        return await gather([sleep_until(START + HOUR), branch(an_hour, timeout=2 * HOUR)])

    with pytest.raises(BranchTimeoutError):
        await hot(body, world=World(clock=Obliging()))
    world = World()
    journal = await first_round(body, world=world)
    assert wakes_at(journal) == START + 1000
    journal.deadlines |= {"t/elsewhere#1": START, "t/done#1": None}
    assert wakes_at(journal) == START + 1000
    world.clock.advance(1000)
    with pytest.raises(BranchTimeoutError):
        await next_round(body, world, journal)


async def test_a_sleep_that_ends_together_with_its_branch_is_folded_with_it() -> None:
    async def too_short(root: Branch) -> Any:
        await ask("a")
        return await an_hour(root)

    async def body(_: Branch) -> Any:
        with pytest.raises(BranchTimeoutError):
            await branch(too_short, timeout=HOUR)
        return await ask("b")

    run = await rounds(body, world=World(clock=Obliging(), patience=2 * HOUR))
    assert (run.value, run.brackets) == ("B", [["a"], ["b"]])


# -- next to questions -----------------------------------------------------------------------


async def ask_within_the_hour(_: Branch) -> Any:
    return await race(ask("a"), an_hour(_))


async def test_a_question_next_to_a_sleep_is_asked_immediately() -> None:
    async def body(_: Branch) -> Any:
        return await gather([ask("a"), sleep_until(START + 1)])

    world = World()
    outcome = await next_round(body, world, world.journal())
    assert isinstance(outcome, Waiting)
    assert [asked.request for asked in outcome.asks] == ["a"]


async def test_a_silent_user_loses_a_race_against_the_clock() -> None:
    world = World()
    journal = await first_round(ask_within_the_hour, world=world)
    world.clock.advance(HOUR)
    assert await next_round(ask_within_the_hour, world, journal) == Finished("awake")
    assert journal.pending == {}

    silent = asyncio.Event()

    async def answerer(_: object) -> Answer:
        await silent.wait()
        raise AssertionError

    world = World(clock=Obliging())
    async with world.call(ask_within_the_hour, world.journal()) as call:
        assert await call.drive(answerer) == "awake"


async def test_an_answer_in_time_wins_and_leaves_no_timer() -> None:
    world = World()
    assert await hot(ask_within_the_hour, world=world) == "A"
    journal = await first_round(ask_within_the_hour, world=world)
    answers = {"t/ask.1": Answer("A")}
    assert await next_round(ask_within_the_hour, world, journal, answers) == Finished("A")
    world.clock.advance(0)
    assert world.clock._alarms == []


async def test_an_answer_after_the_end_of_the_sleep_is_too_late() -> None:
    world = World()
    journal = await first_round(ask_within_the_hour, world=world)
    world.clock.advance(HOUR)
    answers = {"t/ask.1": Answer("A")}
    assert await next_round(ask_within_the_hour, world, journal, answers) == Finished("awake")
    assert "t/ask.1" not in {**journal.entries, **journal.pending}


async def test_a_question_withdrawn_by_the_clock_accepts_no_answer() -> None:
    async def body(root: Branch) -> Any:
        return [await ask_within_the_hour(root), await ask("b")]

    world = World()
    journal = await first_round(body, world=world)
    world.clock.advance(HOUR)
    outcome = await next_round(body, world, journal, {"t/ask.1": Answer("A")})
    assert isinstance(outcome, Waiting)
    assert [asked.request for asked in outcome.asks] == ["b"]
    answers = {"t/ask.1": Answer("A"), "t/ask.2": Answer("B")}
    assert await next_round(body, world, journal, answers) == Finished(["awake", "B"])


async def test_a_late_answer_is_seen_after_the_sleep() -> None:
    seen: list[str] = []

    async def see(operation: Coroutine[Any, Any, Any]) -> None:
        seen.append(str(await operation))

    async def body(_: Branch) -> None:
        await gather([see(ask("a")), see(sleep_until(START + HOUR))])

    world = World()
    journal = Journal.loads((await first_round(body, world=world)).dumps())
    world.clock.advance(HOUR)
    answers = {"t/ask.1": Answer("A")}
    assert await next_round(body, world, journal, answers) == Finished(None)
    assert seen == ["None", "A"]
    assert {each: entry.kind for each, entry in journal.entries.items()} == {
        "t/sleep.1": "sleep",
        "t/ask.1": "elicit",
    }


@pytest.mark.parametrize("asks_first", [True, False], ids=["ask", "sleep"])
async def test_an_answer_known_to_be_earlier_wins_against_the_clock(asks_first: bool) -> None:
    async def body(_: Branch) -> Any:
        asking, sleeping = ask("a"), sleep_until(START + HOUR)
        return await (race(asking, sleeping) if asks_first else race(sleeping, asking))

    world = World()
    journal = await first_round(body, world=world)
    world.clock.advance(HOUR)
    journal.answer({"t/ask.1": Answer("A")})
    hold_sleeps(journal)
    assert await next_round(body, world, journal) == Finished("A")


async def test_a_held_sleep_ends_in_the_next_round() -> None:
    async def body(_: Branch) -> Any:
        return await gather([ask("a"), sleep_until(START + HOUR)])

    world = World()
    journal = await first_round(body, world=world)
    world.clock.advance(HOUR)
    journal.answer({"t/ask.1": Answer("A")})
    hold_sleeps(journal)
    assert await next_round(body, world, journal) == Waiting(())
    journal = Journal.loads(journal.dumps())
    hold_sleeps(journal)  # without answers, there is no sleep to hold
    assert await next_round(body, world, journal) == Finished(("A", None))


# -- how an edge waits -------------------------------------------------------------------------


async def test_work_is_run_until_a_time() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("begun")
        await asyncio.Event().wait()

    clock = Obliging()
    await run_until(clock, START + 60, work())
    assert (done, clock.now()) == (["begun"], START + 60)


async def test_work_that_ends_before_the_time_ends_the_wait() -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    clock = ManualClock()
    await run_until(clock, None, work())
    await run_until(clock, START + 60, work())
    assert clock.now() == START


async def test_an_exception_of_work_is_raised() -> None:
    async def work() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await run_until(ManualClock(), START + 60, work())
