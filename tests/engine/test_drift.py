"""A replay that takes another way than the recorded run ends in a clean error, never wrongly."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from anabranch._engine import Answer, Branch, Call, Journal
from anabranch.errors import NonDeterminismError, ToolError
from tests.engine.harness import (
    World,
    ask,
    ask_here,
    branch,
    first_round,
    hot,
    loudly,
    now,
    rounds,
    say,
    step,
)

Body = Callable[[Branch], Coroutine[Any, Any, Any]]
UNDONE: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_undone() -> None:
    UNDONE.clear()


def undo(value: Any) -> None:
    UNDONE.append(value)


async def answered(body: Body, **answers: str) -> str:
    """Return the state after the first round of ``body``, with every question answered."""
    journal = await first_round(body)
    known = {step_id: Answer(answers.get(step_id, "yes")) for step_id in list(journal.pending)}
    journal.answer(known)
    return journal.dumps()


async def goes_on_with(changed: Body, state: str) -> NonDeterminismError:
    """Continue with a body that has been changed meanwhile; return the error that it ends in."""
    with pytest.raises(NonDeterminismError) as caught:
        await rounds(changed, state=state)
    return caught.value


# -- what is found out -----------------------------------------------------------------------


async def original(_: Branch) -> None:
    await step(str, 1, undo=undo)
    await ask("really?")
    await ask("sure?")


async def test_a_changed_question() -> None:
    async def changed(_: Branch) -> None:
        await step(str, 1)
        await ask("REALLY?")

    error = await goes_on_with(changed, await answered(original))
    assert error.step_id == "t/ask.1"
    assert error.expected.startswith("elicit ")
    assert error.found.startswith("elicit ")
    assert error.expected != error.found


async def test_another_kind_at_the_same_id() -> None:
    async def asking(_: Branch) -> None:
        await ask("a", key="t/str.1")
        await ask("b")

    async def stepping(_: Branch) -> None:
        await step(str, 1)
        await ask("b")

    error = await goes_on_with(stepping, await answered(asking))
    assert error.step_id == "t/str.1"
    assert (error.expected[:6], error.found[:4]) == ("elicit", "step")


async def test_a_removed_step() -> None:
    async def changed(_: Branch) -> None:
        await ask("really?")
        await ask("sure?")

    error = await goes_on_with(changed, await answered(original))
    assert (error.step_id, error.expected, error.found) == ("t/str.1", "step", "not reached")


async def test_a_renamed_step() -> None:
    async def changed(_: Branch) -> None:
        await step(str, 1, name="renamed")
        await ask("really?")
        await ask("sure?")

    error = await goes_on_with(changed, await answered(original))
    assert (error.step_id, error.found) == ("t/str.1", "not reached")


async def test_a_question_that_is_not_asked_again() -> None:
    async def changed(_: Branch) -> str:
        await step(str, 1)
        return "done"

    error = await goes_on_with(changed, await answered(original))
    assert (error.step_id, error.expected, error.found) == ("t/ask.1", "elicit", "not reached")


async def test_an_error_before_a_recorded_step_is_kept_as_the_cause() -> None:
    async def changed(_: Branch) -> None:
        raise ValueError("new check")

    error = await goes_on_with(changed, await answered(original))
    assert error.found == "ValueError before it"
    assert isinstance(error.__cause__, ValueError)


async def test_a_branch_that_is_not_entered_again() -> None:
    async def inner(_: Branch) -> None:
        await ask("inside")

    async def with_branch(_: Branch) -> None:
        await branch(inner)

    async def without(_: Branch) -> None:
        await ask("outside")

    error = await goes_on_with(without, await answered(with_branch))
    assert error.step_id == "t/inner#1/ask.1"


async def test_a_time_that_is_not_asked_for_again() -> None:
    async def timed(_: Branch) -> None:
        now()
        await ask("a")

    async def timeless(_: Branch) -> None:
        await ask("a")

    assert (await goes_on_with(timeless, await answered(timed))).step_id == "t/now.1"


async def test_randomness_of_the_bodys_own() -> None:
    numbers = iter(range(10))

    async def body(_: Branch) -> None:
        await ask(f"Guess {next(numbers)}")

    with pytest.raises(NonDeterminismError, match=r"ctx\.now, ctx\.uuid, ctx\.random"):
        await rounds(body)


# -- what follows ----------------------------------------------------------------------------


async def test_the_call_has_ended_even_if_the_body_catches_the_error() -> None:
    async def changed(_: Branch) -> str:
        with contextlib.suppress(NonDeterminismError):
            await ask("REALLY?")
        with contextlib.suppress(NonDeterminismError):
            await step(UNDONE.append, "an effect after the difference was seen")
        with contextlib.suppress(NonDeterminismError):
            await ask("and now?")
        with contextlib.suppress(NonDeterminismError):
            now()
        return "went on"

    await goes_on_with(changed, await answered(original))
    assert "an effect after the difference was seen" not in UNDONE


async def test_nothing_is_said_after_the_difference_was_seen() -> None:
    world = World()

    async def changed(_: Branch) -> None:
        with contextlib.suppress(NonDeterminismError):
            await ask("REALLY?")
        await say("after it")

    with pytest.raises(NonDeterminismError):
        await rounds(changed, state=await answered(original), world=world)
    assert world.notices == []


async def test_an_effect_that_waited_when_the_difference_was_seen_does_not_happen() -> None:
    async def late() -> None:
        operation = step(UNDONE.append, "late")
        await asyncio.sleep(0.002)
        await operation

    async def changed(_: Branch) -> None:
        helper = asyncio.create_task(late())
        with contextlib.suppress(NonDeterminismError):
            await ask("REALLY?")
        await asyncio.wait([helper])
        assert isinstance(helper.exception(), NonDeterminismError)

    await goes_on_with(changed, await answered(original))
    assert "late" not in UNDONE


async def test_a_question_with_a_key_is_missed_after_a_folded_branch() -> None:
    """The branch is not run again, but it is no branch that the body has not come to."""

    async def inner(_: Branch) -> int:
        return int(await step(int, 1))

    async def before(_: Branch) -> None:
        await branch(inner)
        await ask("really?", key="really")

    async def changed(_: Branch) -> None:
        await branch(inner)

    found = await goes_on_with(changed, await answered(before))
    assert (found.step_id, found.found) == ("really", "not reached")


async def test_claims_of_a_refused_journal_are_not_undone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def changed(_: Branch) -> None:
        await step(str, 1, undo=undo)
        await ask("REALLY?")

    await goes_on_with(changed, await answered(original))
    assert UNDONE == []
    assert "'t/str.1'" in caplog.text


async def test_nor_when_it_is_unwound() -> None:
    async def changed(_: Branch) -> None:
        await ask("REALLY?")

    journal = Journal.loads(await answered(original))
    async with Call(changed, journal, name="t") as call:
        with pytest.raises(TimeoutError):
            await call.unwind(TimeoutError("expired"))
    assert UNDONE == []
    assert [due.step_id for due in journal.compensations] == ["t/str.1"]


async def test_effects_of_the_refused_run_itself_are_undone() -> None:
    async def changed(_: Branch) -> None:
        await step(str, 1, undo=undo)
        await step(str, 2, undo=undo)
        await ask("REALLY?")

    await goes_on_with(changed, await answered(original))
    assert UNDONE == ["2"]


async def test_a_hot_run_over_a_journal_finds_it_out_as_well() -> None:
    world = World()
    journal = Journal.loads(await answered(original))

    async def changed(_: Branch) -> None:
        await ask("REALLY?")

    async with world.call(changed, journal) as call:
        with pytest.raises(NonDeterminismError):
            await call.drive(lambda _: asyncio.sleep(0, Answer("yes")))


# -- what is no drift ------------------------------------------------------------------------


async def test_a_hot_run_goes_on_from_the_journal_of_a_cold_one() -> None:
    async def body(_: Branch) -> Any:
        return [await ask("a"), await ask("b")]

    world = World()
    journal = await first_round(body, world=world)
    journal.answer({"t/ask.1": Answer("A")})

    async def answer(asked: Any) -> Answer:
        return loudly(asked.request)

    async with world.call(body, journal) as call:
        assert await call.drive(answer) == ["A", "B"]


async def test_a_sibling_that_is_cancelled_before_it_comes_to_its_recorded_steps() -> None:
    """asyncio.TaskGroup fails fast: the order of the replay is not that of the first run."""
    effects: list[str] = []

    async def fails() -> None:
        await ask("a")
        raise ToolError("no")

    async def works() -> None:
        await asyncio.sleep(0.002)
        await step(effects.append, "worked")
        await ask("b", key="a key has no path")
        await ask("c")

    async def body(_: Branch) -> Any:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
                group.create_task(works())
        except ExceptionGroup as group_error:
            return [str(group_error.exceptions[0]), await ask("d"), await ask("e")]
        return "no error"

    run = await rounds(body)
    assert run.value == ["no", "D", "E"]
    assert run.brackets == [["a", "b"], ["d"], ["e"]]
    assert effects == ["worked"]


async def test_an_open_question_of_a_cancelled_sibling() -> None:
    async def fails() -> None:
        await ask("a")
        raise ToolError("no")

    async def waits() -> None:
        await asyncio.sleep(0.002)
        await ask("b")

    async def body(_: Branch) -> Any:
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
                group.create_task(waits())
        return await ask("c")

    run = await rounds(body, lambda question: None if question == "b" else loudly(question))
    assert run.brackets == [["a", "b"], ["c"]]
    assert Journal.loads(run.states[0]).pending  # b is still open
    assert not Journal.loads(run.states[1]).pending


async def test_a_branch_that_is_cancelled_before_it_comes_to_its_recorded_steps() -> None:
    async def fails() -> None:
        await ask("a")
        raise ToolError("no")

    async def inner(_: Branch) -> None:
        await asyncio.sleep(0.002)
        await ask("b", key="mine")
        await ask("c")

    async def body(_: Branch) -> Any:
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
                group.create_task(branch(inner))
        return [await ask("d"), await ask("e")]

    assert (await rounds(body)).brackets == [["a", "b"], ["d"], ["e"]]


async def test_a_branch_that_was_made_and_is_not_entered_this_time() -> None:
    async def inner(_: Branch) -> None:
        await ask("b")

    async def fails() -> None:
        await ask("a")
        raise ToolError("no")

    async def body(_: Branch) -> Any:
        operation = branch(inner)
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())
                group.create_task(later(operation))
        return await ask("c")

    async def later(operation: Coroutine[Any, Any, Any]) -> None:
        try:
            await asyncio.sleep(0.002)
            await operation
        finally:
            operation.close()

    assert (await rounds(body)).value == "C"


async def test_a_task_that_the_body_leaves_running_when_it_fails() -> None:
    async def fails() -> None:
        await ask("a")
        raise ToolError("no")

    async def works() -> None:
        await asyncio.sleep(0.002)
        await ask("b")

    async def body(_: Branch) -> None:
        await asyncio.gather(fails(), works())

    with pytest.raises(ToolError, match="no"):
        await rounds(body)


async def test_a_stranger_may_be_late_in_a_replay() -> None:
    """The round may have ended too early: what was not reached proves nothing."""
    delays = iter([0.01, 0.2, 0.0])

    async def waits() -> Any:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(next(delays), event.set)
        await event.wait()
        return await ask("b")

    async def chain() -> Any:
        return [await ask("a"), await ask("c")]

    async def body(_: Branch) -> Any:
        return await asyncio.gather(chain(), waits())

    run = await rounds(body)
    assert run.value == [["A", "C"], "B"]
    assert run.brackets == [["a", "b"], ["c"]]


async def test_a_late_stranger_may_leave_a_question_open_that_is_not_asked_now() -> None:
    delays = iter([0.01, 0.2, 0.0, 0.0])

    async def waits() -> Any:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(next(delays), event.set)
        await event.wait()
        return await ask("b")

    async def chain() -> Any:
        return [await ask("a"), await ask("c")]

    async def body(_: Branch) -> Any:
        return await asyncio.gather(chain(), waits())

    asked: list[str] = []

    def answers(question: str) -> Answer | None:
        asked.append(question)
        return None if asked.count("b") == 1 and question == "b" else loudly(question)

    run = await rounds(body, answers)
    assert run.value == [["A", "C"], "B"]
    assert run.brackets == [["a", "b"], ["c"], ["b"]]


async def test_a_replay_may_ask_and_do_more_than_is_recorded() -> None:
    """Code after the open question may change freely while a call is open."""

    async def longer(_: Branch) -> Any:
        await step(str, 1)
        await ask("really?")
        await step(str, 2)
        return await ask("something new")

    assert (await rounds(longer, state=await answered(original))).value == "SOMETHING NEW"


async def test_time_and_notices_of_a_round_that_is_ending_are_not_part_of_the_call() -> None:
    world = World()

    async def body(_: Branch) -> Any:
        try:
            heard = await ask("a")
        except asyncio.CancelledError:
            now()
            await say("cleaning up")
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.create_task(ask_here("while cleaning up"))
            raise
        return heard

    run = await rounds(body, world=world)
    assert (run.value, run.brackets, world.notices) == ("A", [["a"]], [])
    assert await hot(body) == "A"
