"""The two ways to drive a call, and the guarantees for an edge."""

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from anabranch._aio import SystemClock
from anabranch._budget import Limits
from anabranch._engine import Answer, Ask, Branch, Call, Finished, Journal, Notice, Waiting
from anabranch.errors import BranchTokenError, StepFailed
from anabranch.testing import ManualClock
from tests.engine.harness import (
    World,
    ask,
    ask_here,
    branch,
    failing,
    gather,
    here,
    hot,
    loudly,
    now,
    race,
    rounds,
    say,
    step,
)


async def two_questions(_: Branch) -> Any:
    return [await ask("a"), await ask("b")]


async def at_once(_: Branch) -> Any:
    return await gather([ask("a"), ask("b")])


# -- cold ------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", ["round", "asks"])
async def test_a_call_runs_once(again: str) -> None:
    world = World()
    async with world.call(two_questions, world.journal()) as call:
        await call.round()
        with pytest.raises(RuntimeError, match="build another one for the next round"):
            await (call.round() if again == "round" else anext(call.asks()))


async def test_an_opened_call_that_never_runs_leaves_no_trace() -> None:
    world = World()
    async with world.call(two_questions, world.journal()) as call:
        pass
    assert call.journal == world.journal()


async def test_the_timeout_of_a_call_counts_from_the_start_of_its_journal() -> None:
    journal = Journal("call_1", 1_000.0)
    clock = ManualClock(1_005.0)

    async def body(_: Branch) -> float:
        return now()

    limits = Limits(timeout=10)
    async with Call(body, journal, name="t", limits=limits, clock=clock) as call:
        assert await call.round() == Finished(1_005.0)
    assert journal.deadlines == {"t": 1_010.0}


async def test_a_replay_returns_the_recorded_time() -> None:
    world = World()

    async def body(_: Branch) -> Any:
        times = [now()]
        await ask("a")
        return [*times, now()]

    start = world.clock.now()
    run = await rounds(body, world=world, between=lambda: world.clock.advance(60))
    assert run.value == [start, start + 60]


async def test_operations_after_the_end_of_a_round_cause_no_warning() -> None:
    """Python warns about a coroutine that is never awaited; warnings are errors in the tests."""

    async def body(_: Branch) -> Any:
        later = [step(str, number) for number in range(200)]
        first = await ask("a")
        return [first, *await gather(later)][:3]

    assert (await rounds(body)).value == ["A", "0", "1"]


async def test_operations_after_a_cancelled_round_cause_no_warning() -> None:
    async def body(_: Branch) -> Any:
        return await gather([gather([gather([step(str, 1), ask("b")])]), ask("c")])

    async def run() -> Any:
        world = World()
        async with world.call(body, world.journal()) as call:
            return await call.round()

    async def cancel_after(ticks: int) -> None:
        running = asyncio.ensure_future(run())
        for _ in range(ticks):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])

    for ticks in range(1, 12):
        await cancel_after(ticks)
    gc.collect()


async def test_a_call_without_a_clock_uses_the_system_clock() -> None:
    passed = asyncio.Event()
    SystemClock().call_at(0.0, passed.set)
    await passed.wait()

    async def body(_: Branch) -> bool:
        return now() > 1_700_000_000

    async with Call(body, Journal("call_1", 0.0), name="t") as call:
        assert await call.round() == Finished(value=True)


# -- hot -------------------------------------------------------------------------------------


async def test_questions_come_one_by_one_while_the_body_runs() -> None:
    world = World()
    seen: list[str] = []
    async with world.call(two_questions, world.journal()) as call:
        async for asked in call.asks():
            seen.append(asked.request)
            assert call.is_open(asked.step_id)
            assert call.operations.open_ids("elicit") == [asked.step_id]
            assert call.operations.open_ids("sample", "url") == []
            assert call.answer(asked.step_id, loudly(asked.request))
        assert await call.result() == ["A", "B"]
    assert seen == ["a", "b"]


async def test_an_answer_to_a_question_that_is_not_open_is_refused() -> None:
    world = World()
    async with world.call(two_questions, world.journal()) as call:
        assert not call.answer("t/ask.1", Answer("too early"))
        async for asked in call.asks():
            assert call.answer(asked.step_id, loudly(asked.request))
            assert not call.answer(asked.step_id, Answer("too late"))
            assert not call.answer("t/never.1", Answer("forged"))
        assert await call.result() == ["A", "B"]
        assert not call.answer("t/ask.2", Answer("much too late"))
        assert not call.is_open("t/ask.2")


async def test_a_question_withdrawn_before_it_was_read_is_not_shown() -> None:
    async def body(_: Branch) -> Any:
        task = asyncio.create_task(ask_here("withdrawn"))
        await asyncio.sleep(0)
        task.cancel()
        return await ask("a")

    world = World()
    async with world.call(body, world.journal()) as call:
        seen = [
            (asked.request, call.answer(asked.step_id, Answer(1))) async for asked in call.asks()
        ]
    assert seen == [("a", True)]


async def test_there_is_no_result_before_the_end() -> None:
    world = World()
    async with world.call(two_questions, world.journal()) as call:
        with pytest.raises(RuntimeError, match=r"before asks\(\) has ended"):
            await call.result()
        async for _ in call.asks():
            with pytest.raises(RuntimeError, match=r"before asks\(\) has ended"):
                await call.result()
            break


async def test_a_body_that_cancels_itself_fails_and_cancels_no_other_task() -> None:
    async def body(_: Branch) -> None:
        raise asyncio.CancelledError

    for run in (hot, rounds):
        with pytest.raises(RuntimeError, match="cancelled from within"):
            await run(body)


async def test_an_answer_may_be_an_error() -> None:
    async def body(_: Branch) -> str:
        try:
            await ask("a")
        except StepFailed as error:
            return error.detail
        return "no error"

    assert await hot(body, failing) == (await rounds(body, failing)).value == "no"


async def test_several_questions_are_answered_concurrently() -> None:
    both = asyncio.Barrier(2)
    world = World()

    async def answerer(asked: Ask) -> Answer:
        await both.wait()
        return loudly(asked.request)

    async with world.call(at_once, world.journal()) as call:
        assert await call.drive(answerer) == ("A", "B")


async def test_a_failing_answerer_ends_the_call_and_the_other_answerers() -> None:
    world = World()
    ended: list[str] = []

    async def answerer(asked: Ask) -> Answer:
        if asked.request == "b":
            raise ConnectionError("gone")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(asked.request)
        return Answer("never")

    async def body(_: Branch) -> None:
        try:
            await gather([ask("a"), ask("b"), ask("b")])
        finally:
            ended.append("body")

    async with world.call(body, world.journal()) as call:
        with pytest.raises(ConnectionError, match="gone"):
            await call.drive(answerer)
    assert ended == ["a", "body"]


async def test_a_withdrawn_question_cancels_its_answerer() -> None:
    world = World()
    cancelled: list[str] = []
    asked_for = asyncio.Event()

    async def answerer(asked: Ask) -> Answer:
        if asked.request == "quick":
            await asked_for.wait()
            return Answer("quick")
        asked_for.set()
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.append(asked.request)
        return Answer("never")

    async def body(_: Branch) -> Any:
        return await race(ask("slow"), ask("quick"))

    async with world.call(body, world.journal()) as call:
        assert await call.drive(answerer) == "quick"
    assert cancelled == ["slow"]


# -- answers that are given on the server ----------------------------------------------------


async def ask_the_server(
    question: str, respond: Callable[[Any], Coroutine[Any, Any, Answer]]
) -> Any:
    call, scope = here()
    step_id = call.cursor.new_id(scope, "sample")
    entry = await call.operations.ask(scope, step_id, "sample", question, lambda: question, respond)
    return entry.value


async def test_an_answer_by_the_server_is_an_effect() -> None:
    asked: list[str] = []

    async def respond(question: str) -> Answer:
        asked.append(question)
        await asyncio.sleep(0.001)
        return loudly(question)

    async def body(_: Branch) -> Any:
        return [*await asyncio.gather(ask_the_server("s", respond), ask("a")), await ask("b")]

    run = await rounds(body)
    assert (run.value, run.brackets, asked) == (["S", "A", "B"], [["a"], ["b"]], ["s"])
    entry = Journal.loads(run.states[0]).entries["t/~ask_the_server#1/sample.1"]
    assert (entry.kind, entry.public, entry.tokens) == ("sample", False, None)


async def test_a_refused_request_is_not_asked() -> None:
    def refuse() -> Any:
        raise ValueError("not allowed here")

    async def body(_: Branch) -> str:
        call, scope = here()
        try:
            await call.operations.ask(
                scope, call.cursor.new_id(scope, "ask"), "elicit", "print", refuse
            )
        except ValueError as error:
            return f"{error}, {await ask('a')}"
        return "allowed"

    assert (await rounds(body)).value == "not allowed here, A"


async def test_a_request_refused_by_a_limit_is_refused_in_every_replay() -> None:
    """Spent and open tokens differ in a replay, but the refusal must not."""
    left = iter([0, 100])

    def within_limits() -> Any:
        if not next(left):
            raise BranchTokenError("t", 11, 10)
        return "allowed"

    async def body(_: Branch) -> Any:
        call, scope = here()
        try:
            await call.operations.ask(
                scope, call.cursor.new_id(scope, "ask"), "sample", "print", within_limits
            )
        except BranchTokenError as error:
            return [error.used, await ask("a")]
        return "allowed"

    assert (await rounds(body)).value == [11, "A"]


async def test_a_repeated_question_has_an_id_for_each_attempt() -> None:
    async def body(_: Branch) -> Any:
        call, scope = here()
        first = call.cursor.new_id(scope, "ask")
        heard: list[Any] = []
        for attempt in (1, 2, 3):
            step_id = call.cursor.new_attempt(first, attempt)
            entry = await call.operations.ask(scope, step_id, "elicit", step_id, lambda: "again?")
            heard.append(entry.value)
        return heard

    run = await rounds(body)
    assert run.value == ["AGAIN?"] * 3
    assert list(run.ids) == ["t/ask.1", "t/ask.1~2", "t/ask.1~3"]


# -- notices ---------------------------------------------------------------------------------


async def test_a_notice_is_delivered_once_over_all_rounds() -> None:
    """Law 3."""

    async def helper() -> None:
        await say("from a task")

    async def inner(_: Branch) -> Any:
        await say("from a branch")
        return await ask("b")

    async def body(_: Branch) -> None:
        await say("one")
        await say("one")
        await asyncio.create_task(helper())
        await ask("a")
        await say("two")
        await branch(inner)
        await say("three")

    world = World()
    run = await rounds(body, world=world)
    assert len(run.brackets) == 2
    assert world.notices == ["one", "one", "from a task", "two", "from a branch", "three"]


async def test_a_notice_keeps_its_id_when_its_round_is_repeated() -> None:
    """A client can therefore recognise a notice that was delivered before a crash in its round."""
    state = World().journal().dumps()
    delivered: list[Notice] = []

    async def body(_: Branch) -> None:
        async def inside(_: Branch) -> None:
            await say("inside")

        await say("one")
        await say("two")
        await gather([branch(inside), branch(inside)])
        await ask("a")

    async def deliver(notice: Notice) -> None:
        delivered.append(notice)

    for _ in range(2):
        async with Call(body, Journal.loads(state), name="t", sink=deliver) as call:
            assert isinstance(await call.round(), Waiting)
    assert delivered[:4] == delivered[4:]
    assert len({notice.id for notice in delivered}) == 4


async def test_a_round_waits_until_a_notice_is_delivered() -> None:
    delivered: list[str] = []

    async def slow_sink(notice: Any) -> None:
        await asyncio.sleep(0.07)
        delivered.append(notice.message)

    async def body(_: Branch) -> None:
        await asyncio.gather(ask("a"), say("hello"))

    async with Call(body, Journal("call_1", 0.0), name="t", sink=slow_sink) as call:
        assert isinstance(await call.round(), Waiting)
    assert delivered == ["hello"]


async def test_without_a_reader_notices_go_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def body(_: Branch) -> None:
        await say("hello")

    with caplog.at_level(logging.DEBUG, logger="anabranch.engine"):
        async with Call(body, Journal("call_1", 0.0), name="t") as call:
            await call.round()
    assert "hello" in caplog.text


# -- what remains ----------------------------------------------------------------------------


async def test_a_body_that_fails_while_its_driver_is_cancelled_is_not_reported() -> None:
    reported: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))

    async def fails_while_its_driver_is_cancelled(_: Branch) -> None:
        loop.call_soon(drivers[0].cancel)
        raise ValueError("x")

    async def drive() -> None:
        world = World()
        async with world.call(fails_while_its_driver_is_cancelled, world.journal()) as call:
            await call.round()

    drivers = [asyncio.ensure_future(drive())]
    await asyncio.wait(drivers)
    assert drivers[0].cancelled()
    drivers.clear()
    gc.collect()
    loop.set_exception_handler(None)
    assert reported == []
