"""Branches: enclosing limits, deadlines over several rounds, and folding."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch._budget import Limits
from anabranch._engine import Answer, Branch, Entry, Journal, current_call
from anabranch.errors import (
    BranchTimeoutError,
    BranchTokenError,
    NonDeterminismError,
    SerializationError,
    StepFailed,
    SuspensionError,
    ToolError,
)
from anabranch.testing import ManualClock
from tests.engine.harness import (
    World,
    ask,
    ask_here,
    branch,
    first_round,
    here,
    now,
    rounds,
    say,
    step,
)
from tests.patience import PATIENCE


async def spend(tokens: int, question: str = "q", prompt: int = 0) -> Any:
    """Ask a question that costs ``tokens``, as a sample does."""
    call, scope = here()
    step_id = call.cursor.new_id(scope, "sample")

    def admitted() -> str:
        call.cursor.budgets.reserve(step_id, scope.branch, prompt, tokens)
        return question

    entry = await call.operations.ask(scope, step_id, "sample", question, admitted)
    call.cursor.budgets.settle(step_id, entry, scope.branch, tokens)
    return entry.value


# -- depth -----------------------------------------------------------------------------------


# -- tokens ----------------------------------------------------------------------------------


async def test_a_sample_that_would_exceed_a_budget_is_not_asked() -> None:
    async def body(_: Branch) -> None:
        await spend(8)
        await spend(0, prompt=1)
        await spend(0, prompt=2)

    with pytest.raises(BranchTokenError, match="needs 11 tokens but may use 10"):
        await rounds(body, world=World(Limits(max_tokens=10)))


async def test_an_exceeded_budget_is_the_answer_to_the_question_in_every_replay() -> None:
    caught: list[str] = []

    async def body(_: Branch) -> Any:
        try:
            await spend(11)
        except BranchTokenError as error:
            caught.append(str(error))
        return await ask("and now?")

    run = await rounds(body, world=World(Limits(max_tokens=10)))
    assert run.value == "AND NOW?"
    assert len(caught) == 2
    assert caught[0] == caught[1]


async def test_a_question_is_charged_once_over_all_rounds() -> None:
    async def body(root: Branch) -> int:
        await spend(7)
        await ask("a")
        await ask("b")
        return root.account.tokens

    assert (await rounds(body)).value == 7


async def test_tokens_spent_by_a_loser_stay_charged() -> None:
    async def loser(_: Branch) -> None:
        await spend(30)
        await ask("never")

    async def winner(_: Branch) -> str:
        await ask("a")
        await ask("b")
        return "won"

    async def body(root: Branch) -> int:
        tasks = [asyncio.create_task(branch(loser)), asyncio.create_task(branch(winner))]
        await tasks[1]
        tasks[0].cancel()
        await ask("c")
        await ask("d")
        return root.account.tokens

    run = await rounds(body, lambda q: None if q == "never" else Answer(q.upper()))
    assert run.value == 30


# -- deadlines -------------------------------------------------------------------------------


async def when_stopped(
    inner: Callable[[Branch], Coroutine[Any, Any, Any]], at: str = "never"
) -> tuple[BranchTimeoutError, list[str]]:
    """Run ``inner`` as a branch with a timeout of 30 s, which ends when the branch asks ``at``.

    Returns:
        The error of the branch, and its questions.
    """
    world = World()
    asked: list[str] = []

    async def body(_: Branch) -> None:
        await branch(inner, timeout=30)

    async with world.call(body, world.journal()) as call:
        async for one in call.asks():
            asked.append(one.request)
            if one.request == at:
                world.clock.advance(30)
        with pytest.raises(BranchTimeoutError) as caught:
            await call.result()
    return caught.value, asked


async def test_a_deadline_stops_a_branch_that_waits() -> None:
    async def inner(_: Branch) -> None:
        await ask("never")

    error, asked = await when_stopped(inner)
    assert "'t/inner#1' was stopped after its timeout of 30 s" in str(error)
    assert asked == ["never"]


async def test_a_deadline_lasts_over_rounds() -> None:
    world = World(Limits(timeout=30))

    async def body(_: Branch) -> None:
        for question in "abc":
            await ask(question)

    with pytest.raises(BranchTimeoutError, match="'t' was stopped"):
        await rounds(body, world=world, between=lambda: world.clock.advance(20))


async def test_the_deadline_of_a_branch_counts_from_its_start_over_rounds() -> None:
    world = World()

    async def inner(_: Branch) -> None:
        await ask("b")
        await ask("c")

    async def body(_: Branch) -> str:
        await ask("a")
        try:
            await branch(inner, timeout=15)
        except BranchTimeoutError as error:
            return str(error)
        return "in time"

    run = await rounds(body, world=world, between=lambda: world.clock.advance(10))
    assert run.brackets == [["a"], ["b"], ["c"]]
    assert "'t/inner#1' was stopped" in run.value


async def test_a_branch_done_in_time_is_not_stopped_in_a_later_round() -> None:
    world = World()

    async def inner(_: Branch) -> object:
        await ask("a")
        return inner  # such a value cannot be folded, so the branch runs again

    async def body(_: Branch) -> Any:
        await branch(inner, timeout=15)
        return await ask("b")

    run = await rounds(body, world=world, between=lambda: world.clock.advance(10))
    assert run.value == "B"


async def test_a_late_answer_does_not_complete_a_branch() -> None:
    world = World()

    async def inner(_: Branch) -> Any:
        return await ask("a")

    async def body(_: Branch) -> Any:
        try:
            return await branch(inner, timeout=5)
        except BranchTimeoutError:
            return "too late"

    run = await rounds(body, world=world, between=lambda: world.clock.advance(10))
    assert run.value == "too late"


UNDONE: list[Any] = []


def undo(value: Any) -> None:
    UNDONE.append(value)


def seat() -> str:
    return "12A"


async def test_a_replay_past_the_deadline_passes_records_so_that_they_are_undone() -> None:
    UNDONE.clear()
    world = World(Limits(timeout=30))

    async def body(_: Branch) -> None:
        await step(seat, undo=lambda value: UNDONE.append(f"{value} by a closure"))
        await ask("a", key="a key at the root")
        await step(seat, name="another")

    with pytest.raises(BranchTimeoutError):
        await rounds(body, world=world, between=lambda: world.clock.advance(60))
    assert UNDONE == ["12A by a closure"]


class Alarm(ManualClock):
    """A clock that a callback advances, so that the deadline falls into the middle of a replay."""

    def strike_soon(self, seconds: float) -> None:
        asyncio.get_running_loop().call_soon(self.advance, seconds)


async def test_a_replay_passes_records_after_a_deadline_in_its_middle() -> None:
    UNDONE.clear()
    world = World(Limits(timeout=30), clock=(clock := Alarm()))
    late: list[bool] = []

    async def body(_: Branch) -> None:
        await ask("a", key="first")
        if len(late) == 2:
            clock.strike_soon(60)
            await asyncio.sleep(0.001)
        await step(seat, undo=undo)
        await ask("b", key="second")
        await step(seat, name="another")

    with pytest.raises(BranchTimeoutError):
        await rounds(body, world=world, between=lambda: late.append(True))
    assert UNDONE == ["12A"]


async def test_a_strand_next_to_the_body_ends_with_the_deadline() -> None:
    ended: list[str] = []

    async def helper() -> None:
        try:
            await ask("h")
        finally:
            ended.append("helper")

    async def inner(_: Branch) -> None:
        await asyncio.gather(helper(), ask("i"))

    await when_stopped(inner, at="i")
    assert ended == ["helper"]


async def test_a_task_left_behind_in_a_branch_can_do_nothing_after_its_deadline() -> None:
    world = World()

    async def helper(released: asyncio.Event) -> None:
        await released.wait()
        await ask("too late")

    async def body(_: Branch) -> Any:
        released = asyncio.Event()
        left: list[asyncio.Task[None]] = []

        async def inner(_: Branch) -> None:
            left.append(asyncio.create_task(helper(released)))
            await ask("never")

        with contextlib.suppress(BranchTimeoutError):
            await branch(inner, timeout=30)
        released.set()
        await left[0]

    async with world.call(body, world.journal()) as call:
        async for _ in call.asks():
            world.clock.advance(30)
        with pytest.raises(BranchTimeoutError, match="'t/inner#1' was stopped"):
            await call.result()


async def test_a_task_left_behind_by_a_replay_past_the_deadline_can_do_nothing() -> None:
    """The engine never stopped the branch's body, which only passed records."""
    world = World()

    async def helper(released: asyncio.Event) -> None:
        await released.wait()
        await ask("too late")

    async def body(_: Branch) -> str:
        released = asyncio.Event()
        left: list[asyncio.Task[None]] = []

        async def inner(_: Branch) -> None:
            await ask("a")
            left.append(asyncio.create_task(helper(released)))

        with contextlib.suppress(BranchTimeoutError):
            await branch(inner, timeout=30)
        released.set()
        await asyncio.wait(left)
        return type(left[0].exception()).__name__

    run = await rounds(body, world=world, between=lambda: world.clock.advance(60))
    assert run.value == "BranchTimeoutError"


async def test_a_task_that_asks_past_the_deadline_ends_the_branch_around_it() -> None:
    """In a replay, the branch has not stopped yet; the engine stops it where it would continue."""
    world = World()

    async def helper() -> None:
        await asyncio.sleep(0.001)
        await ask("new")

    async def inner(_: Branch) -> None:
        await ask("a")
        await asyncio.gather(helper(), asyncio.sleep(60))

    async def body(_: Branch) -> str:
        with contextlib.suppress(BranchTimeoutError):
            await branch(inner, timeout=30)
            return "in time"
        return "stopped"

    async with asyncio.timeout(PATIENCE):
        run = await rounds(body, world=world, between=lambda: world.clock.advance(60))
    assert run.value == "stopped"


async def test_a_body_that_swallows_its_deadline_gets_it_again_at_its_next_step() -> None:
    async def inner(_: Branch) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await ask("never")
        await ask("again")

    _, asked = await when_stopped(inner)
    assert asked == ["never"]


async def test_an_error_after_the_deadline_becomes_the_cause_of_the_timeout() -> None:
    async def inner(_: Branch) -> None:
        try:
            await ask("never")
        finally:
            raise ValueError("while cleaning up")

    error, _ = await when_stopped(inner)
    assert isinstance(error.__cause__, ValueError)


async def test_a_timeout_that_the_body_raises_is_not_the_branchs_timeout() -> None:
    async def inner(_: Branch) -> None:
        raise TimeoutError("mine")

    async def body(_: Branch) -> None:
        await branch(inner, timeout=30)

    with pytest.raises(TimeoutError, match="mine"):
        await rounds(body)


async def test_a_branch_reached_while_a_round_ends_has_no_deadline_yet() -> None:
    async def inner(_: Branch) -> None:
        """Clean up without asking."""

    async def body(_: Branch) -> Any:
        try:
            return await ask("a")
        finally:
            await branch(inner, timeout=30)

    journal = await first_round(body)
    assert journal.deadlines == {}
    assert (await rounds(body)).value == "A"


# -- folding ---------------------------------------------------------------------------------


class Card(BaseModel):
    rank: int


async def last_state(inner: Any, **limits: Any) -> Journal:
    """Run ``inner`` as a branch to its end; return the journal of the round after it."""

    async def body(_: Branch) -> None:
        with contextlib.suppress(Exception):
            await branch(inner, **limits)
        await ask("after")

    run = await rounds(body)
    return Journal.loads(run.states[-1])


async def test_a_finished_branch_is_one_entry_with_its_value_and_its_cost() -> None:
    async def inner(_: Branch) -> Any:
        await step(str, 1)
        await spend(5)
        await say("hello")
        return {"answer": await ask("a")}

    journal = await last_state(inner, timeout=60)
    assert journal.entries["t/inner#1"] == Entry("branch", "", {"answer": "A"}, tokens=5)
    assert [known for known in journal.entries if known.startswith("t/inner#1/")] == []
    assert (journal.delivered, journal.deadlines) == ({}, {})


async def test_a_folded_branch_is_not_run_again() -> None:
    ran: list[int] = []

    async def inner(_: Branch) -> Card:
        ran.append(1)
        return Card(rank=7)

    async def body(_: Branch) -> Any:
        card: Card = await branch(inner)
        await ask("a")
        await ask("b")
        return card

    assert (await rounds(body)).value == Card(rank=7)
    assert ran == [1]


async def test_a_failed_branch_folds_to_its_error() -> None:
    ran: list[int] = []

    async def inner(_: Branch) -> None:
        ran.append(1)
        await step(str, 1)
        raise ToolError("sold out")

    async def body(_: Branch) -> str:
        try:
            await branch(inner)
        except ToolError as error:
            return f"{error}: {await ask('a')}"
        return "no error"

    run = await rounds(body)
    assert run.value == "sold out: A"
    assert ran == [1]
    assert list(Journal.loads(run.states[-1]).entries) == ["t/inner#1", "t/ask.1"]


async def raises_a_foreign_error(_: Branch) -> None:
    await step(str, 1)
    raise ValueError("foreign")


async def returns_a_tuple(_: Branch) -> Any:
    await step(str, 1)
    return (1, 2)


async def returns_a_function(_: Branch) -> Any:
    await step(str, 1)
    return len


async def returns_a_subclass(_: Branch) -> Card:
    class Ace(Card):
        suit: str = "spades"

    await step(str, 1)
    return Ace(rank=1)


@pytest.mark.parametrize(
    "inner", [raises_a_foreign_error, returns_a_tuple, returns_a_function, returns_a_subclass]
)
async def test_an_outcome_that_does_not_come_back_the_same_is_not_folded(inner: Any) -> None:
    """The journal cannot restore such an error, and would restore another value."""
    journal = await last_state(inner)
    assert f"t/{inner.__name__}#1/str.1" in journal.entries
    assert f"t/{inner.__name__}#1" not in journal.entries


async def test_a_branch_that_owes_an_undo_folds_if_the_undo_has_a_name() -> None:
    async def inner(_: Branch) -> Any:
        return await step(seat, undo=undo)

    journal = await last_state(inner)
    assert list(journal.entries) == ["t/inner#1", "t/ask.1"]
    assert [(due.value, due.folded) for due in journal.compensations] == [("12A", True)]


async def test_a_branch_that_owes_an_undo_without_a_name_is_not_folded() -> None:
    async def inner(_: Branch) -> str:
        return str(await step(seat, undo=UNDONE.append))

    assert "t/inner#1/seat.1" in (await last_state(inner)).entries


async def test_undos_of_several_branches_keep_separate_values() -> None:
    async def leaf(_: Branch) -> Any:
        return await step(str, "leaf", undo=undo)

    async def middle(_: Branch) -> Any:
        await step(str, "middle", undo=undo)
        return await branch(leaf)

    async def body(_: Branch) -> None:
        await step(str, "root", undo=undo)
        await branch(middle)
        await ask("a")
        raise ToolError("no")

    UNDONE.clear()
    with pytest.raises(ToolError):
        await rounds(body)
    assert UNDONE == ["leaf", "middle", "root"]


async def test_a_branch_that_fails_while_its_round_ends_is_not_folded() -> None:
    async def inner(_: Branch) -> None:
        try:
            await ask("a")
        finally:
            raise ToolError("cleaning up has failed")

    world = World()
    journal = world.journal()

    async def body(_: Branch) -> None:
        await branch(inner)

    async with world.call(body, journal) as call:
        with pytest.raises(SuspensionError, match="raised ToolError instead"):
            await call.round()
    assert journal.entries == {}


async def test_records_of_a_cancelled_task_fold_with_its_branch() -> None:
    async def helper() -> None:
        await asyncio.sleep(0)
        await step(seat, undo=undo)
        await ask("h")

    async def inner(_: Branch) -> Any:
        task = asyncio.create_task(helper())
        heard = await ask("a")
        task.cancel()
        await asyncio.wait([task])
        return heard

    journal = await last_state(inner)
    assert sorted(journal.entries) == ["t/ask.1", "t/inner#1"]
    assert [due.value for due in journal.compensations] == ["12A"]


async def test_the_state_does_not_grow_with_finished_branches() -> None:
    def body(branches: int) -> Any:
        async def ten_steps(_: Branch) -> int:
            for number in range(10):
                await step(str, f"{number:x<100}")
            return 1

        async def run(_: Branch) -> int:
            done = 0

            async def all_of_them(_: Branch) -> int:
                nonlocal done
                for _number in range(branches):
                    done += await branch(ten_steps)
                return done

            await branch(all_of_them)
            await ask("a")
            return done

        return run

    sizes = [len((await first_round(body(number))).dumps()) for number in (1, 100)]
    assert sizes[1] - sizes[0] <= 2  # "100" is longer than "1"


async def test_a_folded_value_that_no_longer_fits_its_function_is_refused() -> None:
    """For example, a deployment changed the return type of the branch function."""

    async def one(_: Branch) -> str:
        return "text"

    async def other(_: Branch) -> int:
        return 1

    def body(inner: Any) -> Any:
        async def run(_: Branch) -> None:
            await branch(inner, name="inner")
            await ask("a")

        return run

    state = (await first_round(body(one))).dumps()
    with pytest.raises(NonDeterminismError) as caught:
        await rounds(body(other), state=state)
    assert isinstance(caught.value.__cause__, SerializationError)


async def test_an_error_answer_inside_a_branch_reaches_the_body_outside() -> None:
    async def inner(_: Branch) -> None:
        await step(fails)

    async def body(_: Branch) -> str:
        try:
            await asyncio.gather(branch(inner), ask_here("a"))
        except StepFailed as error:
            return f"{error.step_id} at {now():.0f}"
        return "no error"

    assert (await rounds(body)).value.startswith("t/inner#1/fails.1 at")


def fails() -> None:
    raise ValueError("no")


# -- watching --------------------------------------------------------------------------------


async def test_branches_are_reported_as_they_open_and_end_within_a_round() -> None:
    seen: list[tuple[str, bool]] = []

    async def watch(path: str, is_open: bool) -> None:
        await asyncio.sleep(0)
        seen.append((path, is_open))

    async def fails(here: Branch) -> None:
        raise ToolError("no")

    async def asks(here: Branch) -> Any:
        return await ask_here("which?")

    async def body(root: Branch) -> Any:
        current_call().branches.watch = watch
        with contextlib.suppress(ToolError):
            await branch(fails)
        return await branch(asks)

    assert (await rounds(body)).value == "WHICH?"
    first = [("t/fails#1", True), ("t/fails#1", False), ("t/asks#1", True)]
    assert seen == [*first, ("t/asks#1", True), ("t/asks#1", False)]
