"""A replay that differs from the recorded run ends in ``NonDeterminismError``, never in a wrong result."""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Coroutine
from functools import partial
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


async def error_after_change(changed: Body, state: str) -> NonDeterminismError:
    """Continue with a changed body, and return the error."""
    with pytest.raises(NonDeterminismError) as caught:
        await rounds(changed, state=state)
    return caught.value


# -- differences that the engine detects -------------------------------------------------------


def doing(*operations: Callable[[], Any]) -> Body:
    async def body(_: Branch) -> None:
        for operation in operations:
            if inspect.isawaitable(done := operation()):
                await done

    return body


async def inner(_: Branch) -> None:
    await ask("inside")


STEP = partial(step, str, 1, undo=undo)
REALLY, SURE, A, B = (partial(ask, question) for question in ("really?", "sure?", "a", "b"))
original = doing(STEP, REALLY, SURE)

FOUND_OUT: dict[str, tuple[Body, Body, str, str, str]] = {
    "another question": (original, doing(STEP, A), "t/ask.1", "elicit ", "elicit "),
    "another kind": (
        doing(partial(ask, "a", key="t/str.1"), B),
        doing(STEP, B),
        "t/str.1",
        "elicit ",
        "step ",
    ),
    "no step": (original, doing(REALLY, SURE), "t/str.1", "step", "not reached"),
    "another name": (
        original,
        doing(partial(step, str, 1, name="renamed"), REALLY, SURE),
        "t/str.1",
        "step",
        "not reached",
    ),
    "no question": (original, doing(STEP), "t/ask.1", "elicit", "not reached"),
    "no branch": (
        doing(partial(branch, inner)),
        doing(A),
        "t/inner#1/ask.1",
        "elicit",
        "not reached",
    ),
    "no time": (doing(now, A), doing(A), "t/now.1", "now", "not reached"),
}


@pytest.mark.parametrize("case", FOUND_OUT)
async def test_a_changed_body_is_detected_and_its_step_is_named(case: str) -> None:
    before, changed, step_id, expected, found = FOUND_OUT[case]
    error = await error_after_change(changed, await answered(before))
    assert error.step_id == step_id
    assert error.expected.startswith(expected)
    assert error.found.startswith(found)
    assert error.expected != error.found


async def test_an_error_before_a_recorded_step_is_kept_as_the_cause() -> None:
    async def changed(_: Branch) -> None:
        raise ValueError("new check")

    error = await error_after_change(changed, await answered(original))
    assert error.found == "ValueError before it"
    assert isinstance(error.__cause__, ValueError)


# -- consequences -----------------------------------------------------------------------------


async def test_the_call_ends_even_if_the_body_catches_the_error() -> None:
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

    await error_after_change(changed, await answered(original))
    assert "an effect after the difference was seen" not in UNDONE


async def test_no_notice_is_sent_after_the_difference() -> None:
    world = World()

    async def changed(_: Branch) -> None:
        with contextlib.suppress(NonDeterminismError):
            await ask("REALLY?")
        await say("after it")

    with pytest.raises(NonDeterminismError):
        await rounds(changed, state=await answered(original), world=world)
    assert world.notices == []


async def test_an_effect_waiting_at_the_difference_does_not_happen() -> None:
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

    await error_after_change(changed, await answered(original))
    assert "late" not in UNDONE


async def test_a_question_with_a_key_is_missed_after_a_folded_branch() -> None:
    """The folded branch does not run again, but the body has reached it."""

    async def inner(_: Branch) -> int:
        return int(await step(int, 1))

    async def before(_: Branch) -> None:
        await branch(inner)
        await ask("really?", key="really")

    async def changed(_: Branch) -> None:
        await branch(inner)

    found = await error_after_change(changed, await answered(before))
    assert (found.step_id, found.found) == ("really", "not reached")


async def test_claims_of_a_refused_journal_are_not_undone(caplog: pytest.LogCaptureFixture) -> None:
    async def changed(_: Branch) -> None:
        await step(str, 1, undo=undo)
        await ask("REALLY?")

    await error_after_change(changed, await answered(original))
    assert UNDONE == []
    assert "'t/str.1'" in caplog.text


async def test_claims_of_a_refused_journal_are_not_undone_by_unwinding() -> None:
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

    await error_after_change(changed, await answered(original))
    assert UNDONE == ["2"]


async def test_a_hot_run_over_a_journal_detects_the_difference() -> None:
    world = World()
    journal = Journal.loads(await answered(original))

    async def changed(_: Branch) -> None:
        await ask("REALLY?")

    async with world.call(changed, journal) as call:
        with pytest.raises(NonDeterminismError):
            await call.drive(lambda _: asyncio.sleep(0, Answer("yes")))


# -- changes that are no drift ------------------------------------------------------------------


async def test_a_hot_run_continues_from_the_journal_of_a_cold_one() -> None:
    async def body(_: Branch) -> Any:
        return [await ask("a"), await ask("b")]

    world = World()
    journal = await first_round(body, world=world)
    journal.answer({"t/ask.1": Answer("A")})

    async def answer(asked: Any) -> Answer:
        return loudly(asked.request)

    async with world.call(body, journal) as call:
        assert await call.drive(answer) == ["A", "B"]


async def fails() -> None:
    await ask("a")
    raise ToolError("no")


async def beside_one_that_fails(sibling: Coroutine[Any, Any, Any]) -> None:
    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            group.create_task(sibling)


async def test_a_sibling_cancelled_before_its_recorded_steps_is_no_drift() -> None:
    """asyncio.TaskGroup cancels early, so the order of the replay differs from the first run."""
    effects: list[str] = []

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


async def test_an_open_question_of_a_cancelled_sibling_is_no_drift() -> None:
    async def waits() -> None:
        await asyncio.sleep(0.002)
        await ask("b")

    async def body(_: Branch) -> Any:
        await beside_one_that_fails(waits())
        return await ask("c")

    run = await rounds(body, lambda question: None if question == "b" else loudly(question))
    assert run.brackets == [["a", "b"], ["c"]]
    assert Journal.loads(run.states[0]).pending  # b is still open
    assert not Journal.loads(run.states[1]).pending


async def test_a_branch_cancelled_before_its_recorded_steps_is_no_drift() -> None:
    async def inner(_: Branch) -> None:
        await asyncio.sleep(0.002)
        await ask("b", key="mine")
        await ask("c")

    async def body(_: Branch) -> Any:
        await beside_one_that_fails(branch(inner))
        return [await ask("d"), await ask("e")]

    assert (await rounds(body)).brackets == [["a", "b"], ["d"], ["e"]]


async def test_a_branch_that_is_not_entered_this_time_is_no_drift() -> None:
    async def inner(_: Branch) -> None:
        await ask("b")

    async def body(_: Branch) -> Any:
        operation = branch(inner)
        await beside_one_that_fails(later(operation))
        return await ask("c")

    async def later(operation: Coroutine[Any, Any, Any]) -> None:
        try:
            await asyncio.sleep(0.002)
            await operation
        finally:
            operation.close()

    assert (await rounds(body)).value == "C"


async def test_a_task_that_runs_when_the_body_fails_is_no_drift() -> None:
    async def works() -> None:
        await asyncio.sleep(0.002)
        await ask("b")

    async def body(_: Branch) -> None:
        await asyncio.gather(fails(), works())

    with pytest.raises(ToolError, match="no"):
        await rounds(body)


def with_a_stranger(*delays: float) -> Body:
    """Return a body that asks ``b`` when a task outside the call lets it, each round after another delay."""
    left = iter(delays)

    async def waits() -> Any:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(next(left), event.set)
        await event.wait()
        return await ask("b")

    async def chain() -> Any:
        return [await ask("a"), await ask("c")]

    async def body(_: Branch) -> Any:
        return await asyncio.gather(chain(), waits())

    return body


async def test_an_outside_task_may_be_late_in_a_replay() -> None:
    """The round may have ended too early, so an unreached entry proves no difference."""
    run = await rounds(with_a_stranger(0.01, 0.2, 0.0))
    assert run.value == [["A", "C"], "B"]
    assert run.brackets == [["a", "b"], ["c"]]


async def test_a_late_outside_task_may_leave_an_open_question_unasked() -> None:
    asked: list[str] = []

    def answers(question: str) -> Answer | None:
        asked.append(question)
        return None if asked.count("b") == 1 and question == "b" else loudly(question)

    run = await rounds(with_a_stranger(0.01, 0.2, 0.0, 0.0), answers)
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


async def test_time_and_notices_of_an_ending_round_are_not_recorded() -> None:
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
