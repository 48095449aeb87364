"""Several concurrent operations: ``gather`` waits for all, ``race`` for the first."""

import asyncio
import inspect
from typing import Any

import pytest

from anabranch._aio import all_or_first_error, cancel_and_wait, none_of, run_shielded
from anabranch._engine import Answer, Branch
from anabranch.errors import ToolError
from tests.engine.harness import (
    World,
    ask,
    ask_here,
    branch,
    first_round,
    gather,
    hot,
    loudly,
    race,
    rounds,
    step,
)


async def fail(after: float, message: str) -> None:
    await asyncio.sleep(after)
    raise ToolError(message)


# -- all -------------------------------------------------------------------------------------


async def test_gather_of_nothing_is_empty() -> None:
    async def body(_: Branch) -> Any:
        return await gather([])

    assert (await rounds(body)).value == ()


async def test_gather_lets_all_end_and_raises_the_first_error_in_order() -> None:
    """The first error in time depends on the speed of answers, which differs between edges."""
    ended: list[str] = []

    async def slow() -> None:
        await asyncio.sleep(0.005)
        ended.append("slow")

    async def body(_: Branch) -> None:
        await gather([slow(), fail(0.003, "first in order"), fail(0, "first in time")])

    with pytest.raises(ToolError, match="first in order"):
        await rounds(body)
    assert ended == ["slow"]


async def test_a_job_cancelled_from_inside_cancels_its_caller() -> None:
    """Otherwise the list would lack that job's value, and later values would move to its place."""
    ended: list[str] = []

    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def other() -> None:
        await asyncio.sleep(0)
        ended.append("other")

    with pytest.raises(asyncio.CancelledError):
        await all_or_first_error([cancelled, other])
    assert ended == ["other"]


async def test_a_cancelled_gather_waits_until_all_have_cancel_and_wait() -> None:
    ended: list[str] = []

    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.001)
            ended.append("cancelled")

    async def body(_: Branch) -> Any:
        async with asyncio.timeout(0.001) as limit:
            limit.reschedule(asyncio.get_running_loop().time() + 0.005)
            await gather([slow_to_end(), slow_to_end()])

    with pytest.raises(TimeoutError):
        await hot(body)
    assert ended == ["cancelled", "cancelled"]


async def test_a_cancelled_task_cancels_its_gather() -> None:
    async def body(_: Branch) -> Any:
        task = asyncio.create_task(ask_here("a"))
        asyncio.get_running_loop().call_soon(task.cancel)
        try:
            await gather([task, fail(0.001, "later in order")])
        except asyncio.CancelledError:
            return "cancelled"
        return "not cancelled"

    assert (await rounds(body)).value == "cancelled"


# -- the first -------------------------------------------------------------------------------


async def test_a_race_returns_the_first_and_withdraws_the_questions_of_the_others() -> None:
    async def quick() -> str:
        await asyncio.sleep(0)
        return "quick"

    async def body(_: Branch) -> Any:
        winner = await race(ask("never"), ask_here("neither"), quick())
        return [winner, await ask("a")]

    run = await rounds(body)
    assert (run.value, run.brackets) == (["quick", "A"], [["a"]])


async def test_the_first_in_order_wins_a_race_of_simultaneous_ends() -> None:
    async def body(_: Branch) -> Any:
        return [await race(ask("a"), ask("b")), await ask("c")]

    assert (await rounds(body)).value == ["A", "C"]


async def test_a_replay_does_not_race_again() -> None:
    delays = iter([20, 0])

    async def timed(name: str, passes: int) -> str:
        for _ in range(passes):  # passes of the loop: on a busy machine, seconds decide nothing
            await asyncio.sleep(0)
        return name

    async def body(_: Branch) -> Any:
        slow_at_first = next(delays)
        winner = await race(timed("slow at first", slow_at_first), timed("steady", 10))
        return [winner, await ask("a")]

    assert (await rounds(body)).value == ["steady", "A"]


async def test_a_replay_finds_the_winners_records_under_the_same_names() -> None:
    """All racers were started at the first record, so each counts for the names of the next racers."""

    async def racer(number: int) -> Any:
        if number == 0:
            await asyncio.Event().wait()
        return [await step(str, number), await ask(f"q{number}")]

    async def body(_: Branch) -> Any:
        return [await race(racer(0), racer(1), racer(2)), await ask("a"), await ask("b")]

    run = await rounds(body, lambda question: None if question == "q1" else loudly(question))
    assert run.value == [["2", "Q2"], "A", "B"]
    # The steps run in threads, and either may end first.
    assert [sorted(each) for each in run.brackets] == [["q1", "q2"], ["a"], ["b"]]


async def test_branches_and_tasks_can_race() -> None:
    async def inner(_: Branch) -> Any:
        return await ask("a")

    async def loser(_: Branch) -> Any:
        return await ask("never")

    async def body(_: Branch) -> Any:
        task = asyncio.create_task(ask_here("neither"))
        return [await race(branch(loser), task, branch(inner)), await ask("b"), task.cancelled()]

    run = await rounds(body, lambda question: None if question[0] == "n" else loudly(question))
    assert run.value == ["A", "B", True]


async def test_an_error_can_win_a_race_and_wins_its_replay() -> None:
    seen: list[str] = []

    async def body(_: Branch) -> Any:
        try:
            await race(fail(0, "first"), ask("never"))
        except ToolError as error:
            seen.append(str(error))
        return await ask("a")

    assert (await rounds(body)).value == "A"
    assert seen == ["first", "first"]


async def test_a_cancelled_race_has_no_winner() -> None:
    async def body(_: Branch) -> Any:
        racing = asyncio.create_task(race(ask("never"), ask("neither")))
        await asyncio.sleep(0.001)
        racing.cancel()
        await asyncio.wait([racing])
        return [racing.cancelled(), await ask("a")]

    run = await rounds(body)
    assert (run.value, run.brackets) == ([True, "A"], [["a"]])


async def test_a_replayed_race_can_be_cancelled() -> None:
    async def winner() -> None:
        await asyncio.sleep(0.005)

    async def body(_: Branch) -> Any:
        racing = asyncio.create_task(race(ask("never"), winner()))
        if heard:
            asyncio.get_running_loop().call_later(0.001, racing.cancel)
        await asyncio.wait([racing])
        heard.append(await ask("a"))
        return racing.cancelled()

    heard: list[Any] = []
    world = World()
    journal = await first_round(body, world=world)
    journal.answer({"t/ask.2": Answer("A")})
    heard.append("the first round is over")
    assert (await rounds(body, state=journal.dumps())).value is True


async def test_a_race_open_at_the_end_of_a_round_is_open_in_the_next() -> None:
    async def body(_: Branch) -> Any:
        return await race(ask("a"), ask("b"))

    journal = await first_round(body)
    assert "t/race.1" not in journal.entries
    assert list(journal.pending) == ["t/ask.1", "t/ask.2"]


# -- hot and cold agree ----------------------------------------------------------------------


# -- cancelling and shielding ------------------------------------------------------------------


async def test_cancel_and_wait_retrieves_errors_so_that_asyncio_does_not_report_them() -> None:
    failed = asyncio.create_task(fail(0, "nobody asked"))
    await asyncio.wait([failed])
    running = asyncio.create_task(asyncio.sleep(60))
    await cancel_and_wait([failed, running])
    assert running.cancelled()


async def test_shielded_work_ends_before_its_caller_is_cancelled() -> None:
    may_end = asyncio.Event()
    done: list[str] = []

    async def work() -> str:
        await may_end.wait()
        done.append("worked")
        return "value"

    task = asyncio.create_task(run_shielded(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        task.cancel()
    may_end.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert done == ["worked"]
    assert await run_shielded(work()) == "value"


async def test_the_error_of_shielded_work_is_raised() -> None:
    with pytest.raises(ToolError, match="no"):
        await run_shielded(fail(0, "no"))


async def test_none_of_closes_started_and_unstarted_operations() -> None:
    async def never() -> None:
        raise AssertionError

    started, unstarted = asyncio.ensure_future(asyncio.sleep(60)), never()
    with pytest.raises(LookupError, match="no model"):
        await none_of([started, unstarted], LookupError("no model"))
    assert started.cancelled()
    assert inspect.getcoroutinestate(unstarted) == inspect.CORO_CLOSED
