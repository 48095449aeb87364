"""The end of a round: the engine cancels the body, and the body must end."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import anyio
import pytest

from anabranch._engine import Branch, Journal, scheduler
from anabranch.errors import SuspensionError
from tests.diary import DONE
from tests.engine.harness import (
    World,
    ask,
    ask_here,
    branch,
    first_round,
    here,
    hot,
    race,
    rounds,
    say,
    step,
)

Body = Callable[[Branch], Coroutine[Any, Any, Any]]
pytestmark = pytest.mark.usefixtures("nothing_done")


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time after which the engine gives up a body that ignores its cancellation."""
    monkeypatch.setattr(scheduler, "CANCEL_TIMEOUT", 0.02)


async def refused(body: Body) -> SuspensionError:
    with pytest.raises(SuspensionError, match="Do not catch BaseException") as caught:
        await rounds(body)
    return caught.value


# -- bodies that end -------------------------------------------------------------------------


async def test_suspension_raises_no_exception_that_author_code_can_catch() -> None:
    async def body(_: Branch) -> Any:
        try:
            return await ask("a")
        except Exception as error:  # noqa: BLE001 - as an author might
            return f"caught {error!r}"

    assert (await rounds(body)).value == "A"


async def test_finally_blocks_run_in_every_round() -> None:
    async def body(_: Branch) -> Any:
        try:
            return [await ask("a"), await ask("b")]
        finally:
            DONE.append("finally")

    await rounds(body)
    assert DONE == ["finally"] * 3


async def test_a_step_in_a_finally_block_happens_when_the_body_really_ends() -> None:
    async def body(_: Branch) -> Any:
        try:
            return [await ask("a"), await ask("b")]
        finally:
            await step(DONE.append, "step")
            await say("said")

    world = World()
    assert (await rounds(body, world=world)).value == ["A", "B"]
    assert (DONE, world.notices) == (["step"], ["said"])


async def test_steps_in_context_managers_handlers_and_finally_tasks_happen_at_the_real_end() -> (
    None
):
    @contextlib.asynccontextmanager
    async def connection() -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await step(DONE.append, "closed")

    class Transaction:
        async def __aenter__(self) -> None:
            """Enter without an effect."""

        async def __aexit__(self, *_: object) -> None:
            await step(DONE.append, "committed")

    async def cleaner() -> None:
        await step(DONE.append, "cleaned")

    async def body(_: Branch) -> Any:
        async with connection(), Transaction():
            try:
                return await ask("a")
            finally:
                with anyio.CancelScope(shield=True):
                    await asyncio.create_task(cleaner())

    assert (await rounds(body)).value == "A"
    assert DONE == ["cleaned", "committed", "closed"]


async def test_a_question_in_a_finally_block_belongs_to_a_later_round() -> None:
    async def body(_: Branch) -> Any:
        try:
            return await ask("a")
        finally:
            DONE.append(await ask("b"))

    run = await rounds(body)
    assert (run.value, run.brackets, DONE) == ("A", [["a"], ["b"]], ["B"])


async def test_a_draw_in_a_finally_block_is_recorded_when_the_body_really_ends() -> None:
    async def body(_: Branch) -> Any:
        try:
            return await ask("a")
        finally:
            call, scope = here()
            DONE.append(str(call.operations.random(scope).random()))

    run = await rounds(body)
    assert "seed" not in {entry.kind for entry in Journal.loads(run.states[0]).entries.values()}
    assert (run.value, len(DONE), len(set(DONE))) == ("A", 2, 1)


async def test_a_branch_in_a_finally_block_is_not_entered_while_the_round_ends() -> None:
    async def inner(_: Branch) -> None:
        DONE.append("entered")

    async def body(_: Branch) -> Any:
        try:
            return await ask("a")
        finally:
            await branch(inner)

    assert (await rounds(body)).value == "A"
    assert DONE == ["entered"]


async def test_a_race_in_a_finally_block_is_run_again_in_a_later_round() -> None:
    async def clean(how: str) -> str:
        DONE.append(how)
        return how

    async def body(_: Branch) -> Any:
        try:
            await ask("a")
        finally:
            heard = await race(clean("first"), clean("second"))
        return [heard, await ask("b")]

    assert (await rounds(body)).value == ["first", "B"]


async def cleaner() -> None:
    await asyncio.sleep(0.02)
    DONE.append("cleaned")


@pytest.mark.parametrize("tasks", [0, 2])
async def test_a_round_waits_for_slow_cleanup(tasks: int) -> None:
    async def body(_: Branch) -> Any:
        try:
            return await ask("a")
        finally:
            await (asyncio.gather(*(cleaner() for _ in range(tasks))) if tasks else cleaner())

    await first_round(body)
    assert ["cleaned"] * max(tasks, 1) == DONE


async def test_a_body_may_swallow_the_cancellation_of_its_task() -> None:
    async def body(_: Branch) -> Any:
        task = asyncio.create_task(ask_here("never"))
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return await ask("a")

    assert (await rounds(body)).value == "A"


# -- bodies that do not end --------------------------------------------------------------------


async def test_a_body_that_swallows_its_cancellation_and_returns_is_named_by_its_question() -> None:
    async def body(_: Branch) -> str:
        with contextlib.suppress(BaseException):
            await ask("a")
        return "went on"

    error = await refused(body)
    assert error.step_ids == ["t/ask.1"]
    assert error.found == "it went on and returned a value"


async def clean_up() -> None:
    raise ValueError("clean-up failed")


@pytest.mark.parametrize(
    ("then", "found"),
    [
        (lambda: ask("b"), "it went on to 't/ask.2'"),
        (lambda: step(DONE.append, "done"), "it went on to 't/append.1'"),
        (clean_up, "it raised ValueError instead"),
    ],
    ids=["asks", "does", "raises"],
)
async def test_a_body_that_swallows_its_cancellation_and_continues_is_refused(
    then: Callable[[], Coroutine[Any, Any, Any]], found: str
) -> None:
    async def body(_: Branch) -> None:
        with contextlib.suppress(BaseException):
            await ask("a")
        await then()

    error = await refused(body)
    assert (error.step_ids, error.found) == (["t/ask.1"], found)
    assert DONE == []


async def test_the_error_names_the_strand_that_swallowed_its_cancellation() -> None:
    async def swallows() -> str:
        with contextlib.suppress(BaseException):
            await ask("b")
        return "went on"

    async def body(_: Branch) -> None:
        await asyncio.gather(ask_here("a"), swallows(), ask_here("c"))

    assert (await refused(body)).step_ids == ["t/~swallows#1/ask.1"]


async def test_a_strand_without_a_question_is_named_by_all_questions() -> None:
    async def body(_: Branch) -> str:
        tasks = [asyncio.create_task(ask_here(question)) for question in "ab"]
        with contextlib.suppress(BaseException):
            await asyncio.gather(*tasks)
        return "went on"

    error = await refused(body)
    assert error.step_ids == ["t/~ask_here#1/ask.1", "t/~ask_here#2/ask.1"]


@pytest.mark.usefixtures("quickly")
async def test_a_body_that_never_ends_is_given_up() -> None:
    may_end = asyncio.Event()

    async def body(_: Branch) -> str:
        try:
            return str(await ask("a"))
        finally:
            while not may_end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await may_end.wait()

    error = await refused(body)
    may_end.set()
    assert error.step_ids == ["t/ask.1"]
    assert error.found.endswith("still runs 0.02 s later")


@pytest.mark.usefixtures("quickly")
async def test_a_body_that_asks_again_for_ever_is_parked_for_ever() -> None:
    """Otherwise the body would keep the loop busy."""
    times = 0
    may_end = False

    async def body(_: Branch) -> str:
        nonlocal times
        while not may_end:
            with contextlib.suppress(asyncio.CancelledError):
                return str(await ask("a"))
            times += 1
        return "gave up"

    world = World()
    async with world.call(body, world.journal()) as call:
        try:
            with pytest.raises(SuspensionError):
                await call.round()
            assert 1 <= times < 200
            parked = times
            for _ in range(100):
                await asyncio.sleep(0)
            assert times == parked
        finally:
            may_end = True
            (task,) = call.scheduler.strands
            task.cancel()
        assert await task == "gave up"


@pytest.mark.usefixtures("quickly")
async def test_a_task_that_outlives_a_finished_body_is_given_up() -> None:
    may_end = asyncio.Event()

    async def stubborn() -> None:
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await may_end.wait()

    async def body(_: Branch) -> Any:
        task = asyncio.create_task(stubborn())
        return [await ask("a"), task.get_name() != ""]

    assert await hot(body) == ["A", True]
    may_end.set()
