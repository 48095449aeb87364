"""An effect happens once, is recorded before its value is seen, and is undone in reverse order."""

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from anabranch._engine import Answer, Ask, Branch, Journal, current_idempotency_key, pin, scheduler
from anabranch._engine.functions import idempotency_key
from anabranch.errors import NonDeterminismError, SerializationError, StepFailed, ToolError
from tests.engine.harness import World, ask, branch, first_round, hot, race, rounds, step
from tests.patience import PATIENCE

Body = Callable[[Branch], Coroutine[Any, Any, Any]]
DONE: list[Any] = []
UNDONE: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()
    UNDONE.clear()


def do(what: str) -> str:
    DONE.append(what)
    return f"<{what}>"


async def do_async(what: str) -> str:
    await asyncio.sleep(0)
    return do(what)


def returns_a_coroutine(what: str) -> Coroutine[Any, Any, str]:
    return do_async(what)


def undo(value: Any) -> None:
    UNDONE.append(value)


async def undo_async(value: Any) -> None:
    await asyncio.sleep(0)
    undo(value)


# -- once ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [do, do_async, functools.partial(do_async), returns_a_coroutine],
    ids=["sync", "async", "partial", "returns a coroutine"],
)
async def test_an_effect_happens_once_over_all_rounds(function: Callable[[str], Any]) -> None:
    async def body(_: Branch) -> Any:
        value = await step(function, "x", name="effect")
        return [value, await ask("a"), await ask("b")]

    assert (await rounds(body)).value == ["<x>", "A", "B"]
    assert DONE == ["x"]


async def test_a_plain_function_runs_in_a_thread_and_an_async_one_on_the_loop() -> None:
    async def here() -> int:
        return threading.get_ident()

    async def body(_: Branch) -> list[bool]:
        mine = threading.get_ident()
        return [mine == await step(threading.get_ident), mine == await step(here)]

    assert (await rounds(body)).value == [False, True]


async def test_an_object_with_an_async_call_runs_on_the_loop() -> None:
    class Effect:
        async def __call__(self) -> int:
            return threading.get_ident()

    async def body(_: Branch) -> bool:
        return bool(threading.get_ident() == await step(Effect()))

    assert (await rounds(body)).value is True


async def test_the_idempotency_key_is_known_while_an_effect_runs() -> None:
    async def body(_: Branch) -> Any:
        return [await step(current_idempotency_key.get), await step(key_on_the_loop)]

    async def key_on_the_loop() -> str | None:
        return current_idempotency_key.get()

    assert (await rounds(body)).value == ["call_1:t/t/get.1", "call_1:t/t/key_on_the_loop.1"]
    assert current_idempotency_key.get() is None


# -- errors ----------------------------------------------------------------------------------


def break_down() -> None:
    DONE.append("tried")
    raise ValueError("a secret of the database")


def refuse() -> None:
    raise ToolError("sold out")


@pytest.mark.parametrize("run", [rounds, hot], ids=["cold", "hot"])
async def test_a_failed_effect_fails_the_same_way_in_every_round(run: Any) -> None:
    async def body(_: Branch) -> Any:
        try:
            await step(break_down)
        except StepFailed as error:
            return [error.step_id, error.error, error.detail, await ask("a")]
        return "no error"

    outcome = await run(body)
    value = outcome if run is hot else outcome.value
    assert value == ["t/break_down.1", "ValueError", "a secret of the database", "A"]
    assert DONE == ["tried"]


async def test_the_original_error_is_the_cause_in_its_round() -> None:
    async def body(_: Branch) -> None:
        await step(break_down)

    with pytest.raises(StepFailed) as caught:
        await rounds(body)
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_library_error_keeps_its_type() -> None:
    seen: list[str] = []

    async def body(_: Branch) -> Any:
        try:
            await step(refuse)
        except ToolError as error:
            seen.append(str(error))
        return await ask("a")

    assert (await rounds(body)).value == "A"
    assert seen == ["sold out", "sold out"]


def open_connection() -> Any:
    DONE.append("opened")
    return threading.Event()


async def test_a_value_that_cannot_be_recorded_ends_the_call_even_if_it_is_caught() -> None:
    async def body(_: Branch) -> str:
        await step(do, "before", undo=undo)
        with contextlib.suppress(SerializationError):
            await step(open_connection)
        with contextlib.suppress(SerializationError):
            await ask("and now?")
        return "went on"

    with pytest.raises(SerializationError, match=r"'t/open_connection.1' is of type Event"):
        await rounds(body)
    assert DONE == ["before", "opened"]
    assert UNDONE == ["<before>"]


# -- undos -----------------------------------------------------------------------------------


async def book_two(_: Branch) -> None:
    await step(do, "one", undo=undo)
    await ask("a")
    await step(do_async, "two", undo=undo_async)


@pytest.mark.parametrize("run", [rounds, hot], ids=["cold", "hot"])
async def test_a_failed_call_undoes_its_effects_in_reverse(run: Any) -> None:
    async def body(root: Branch) -> None:
        await book_two(root)
        raise ToolError("too dear")

    with pytest.raises(ToolError, match="too dear"):
        await run(body)
    assert UNDONE == ["<two>", "<one>"]


@pytest.mark.parametrize("run", [rounds, hot], ids=["cold", "hot"])
async def test_a_successful_call_undoes_nothing(run: Any) -> None:
    await run(book_two)
    assert UNDONE == []
    assert DONE == ["one", "two"]


async def test_an_effect_that_failed_is_not_undone() -> None:
    async def body(_: Branch) -> None:
        await step(break_down, undo=undo)

    with pytest.raises(StepFailed):
        await rounds(body)
    assert UNDONE == []


async def test_an_undo_gets_the_value_as_every_replay_sees_it() -> None:
    async def body(_: Branch) -> None:
        await step(lambda: (1, 2), undo=undo, name="pair")
        await ask("a")
        raise ToolError("no")

    with pytest.raises(ToolError):
        await rounds(body)
    assert UNDONE == [[1, 2]]


async def test_the_undo_of_a_folded_branch_is_found_by_its_name() -> None:
    async def inner(_: Branch) -> Any:
        return await step(do, "inside", undo=undo)

    async def body(_: Branch) -> None:
        await branch(inner)
        await ask("a")
        raise ToolError("no")

    with pytest.raises(ToolError):
        await rounds(body)
    assert UNDONE == ["<inside>"]


async def test_the_undo_of_an_unreached_step_in_a_task_is_found_by_name() -> None:
    """The replay fails before the other task has reached its recorded step."""
    failing = asyncio.Event()

    async def fail() -> None:
        await ask("a")
        failing.set()
        raise ToolError("no")

    async def book() -> None:
        if failing.is_set():
            await asyncio.sleep(60)
        await step(do, "beside", undo=undo)
        await ask("b")

    async def body(_: Branch) -> None:
        await asyncio.gather(fail(), book())

    with pytest.raises(ToolError):
        await rounds(body)
    assert (DONE, UNDONE) == (["beside"], ["<beside>"])


async def test_the_value_of_a_step_is_never_compressed_with_the_clients_text() -> None:
    """The compressed length would tell the client which parts of the value equal the client's text."""

    async def body(_: Branch) -> None:
        await step(do, "secret")
        await ask("a")

    assert not (await first_round(body)).entries["t/do.1"].public


async def test_a_failing_undo_is_recorded_and_the_others_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(value: Any) -> None:
        raise OSError(f"cannot undo {value}")

    world = World()
    journal = world.journal()

    async def body(_: Branch) -> None:
        await step(do, "first", undo=undo)
        await step(do, "second", undo=broken)
        await step(do, "third", undo=undo)
        raise ToolError("no")

    async with world.clock.running(), world.call(body, journal) as call:
        with pytest.raises(ToolError) as caught:
            await call.round()
    assert UNDONE == ["<third>", "<first>"]
    assert caught.value.__notes__ == ["An undo failed as well: OSError('cannot undo <second>')"]
    assert [due.step_id for due in journal.compensations] == ["t/do.2"]
    failed = "the undo of step 't/do.2' failed"
    assert f"{failed}: OSError('cannot undo <second>'); retrying in" in caplog.text
    assert f"{failed}\n" in caplog.text


async def test_a_failing_undo_is_retried_with_growing_pauses() -> None:
    world = World()
    tried: list[float] = []

    async def fragile(_: Any) -> None:  # in a thread, it would take as long as the machine likes
        """asynchronous: a thread would take an unknown time"""
        tried.append(round(world.clock.now() - began, 1))
        if len(tried) < 3:
            raise OSError("not now")

    async def body(_: Branch) -> None:
        await step(do, "first", undo=fragile)
        raise ToolError("no")

    began = world.clock.now()
    journal = world.journal()
    async with world.clock.running(), world.call(body, journal) as call:
        with pytest.raises(ToolError) as caught:
            await call.round()
    assert len(tried) == 3
    assert tried[2] - tried[1] > tried[1] - tried[0] > 0
    assert not hasattr(caught.value, "__notes__")
    assert journal.compensations == []


async def test_each_attempt_of_an_undo_has_another_key() -> None:
    keys: list[str] = []

    def pay() -> None:
        keys.append(idempotency_key())

    async def refund(_: Any) -> None:
        keys.append(idempotency_key())
        if len(keys) == 2:
            raise OSError("not now")

    def refund_in_a_thread(_: Any) -> None:
        keys.append(idempotency_key())

    async def body(_: Branch) -> None:
        await step(pay, undo=refund_in_a_thread)
        await step(do, "it", undo=refund)
        raise ToolError("no")

    world = World()
    async with world.clock.running(), world.call(body, world.journal()) as call:
        with pytest.raises(ToolError):
            await call.round()
    paid, *refunds = keys
    line = paid.partition(":")[0]
    undo_do, undo_pay = f"{line}:t/do.1/undo", f"{line}:t/pay.1/undo"
    assert refunds == [undo_do, undo_do, undo_pay]
    with pytest.raises(RuntimeError, match="in a step or in an undo"):
        idempotency_key()


async def test_a_missing_undo_is_recorded() -> None:
    """For example after a deployment, for a step in a folded branch."""

    async def body(_: Branch) -> None:
        await branch(book_inside)
        await ask("a")
        raise ToolError("no")

    async def book_inside(_: Branch) -> Any:
        return await step(do, "inside", undo=undo)

    journal = await first_round(body)
    journal.compensations[0].undo = "no.such.module:undo"
    with pytest.raises(ToolError) as caught:
        await rounds(body, state=journal.dumps())
    assert "LookupError('no.such.module:undo')" in caught.value.__notes__[0]


async def test_a_dropped_round_undoes_only_the_effects_of_that_round() -> None:
    """The same round can therefore be retried from the same state."""
    world = World()
    reached = asyncio.Event()

    async def body(_: Branch) -> str:
        await step(do, "before", undo=undo)
        await ask("a")
        await step(do, "after", undo=undo)
        reached.set()
        await asyncio.sleep(60)
        return "never"

    state = (await answered(body, world)).dumps()
    async with world.call(body, Journal.loads(state)) as call:
        running = asyncio.create_task(call.round())
        await reached.wait()
        running.cancel()
        await asyncio.wait([running])
    assert UNDONE == ["<after>"]


async def answered(body: Body, world: World) -> Journal:
    """Return the journal after the first round, with its questions answered."""
    journal = await first_round(body, world=world)
    journal.answer({step_id: Answer("yes") for step_id in list(journal.pending)})
    return journal


async def test_a_cancelled_hot_call_undoes_all_effects() -> None:
    world = World()

    async def body(_: Branch) -> None:
        await step(do, "one", undo=undo)
        await step(do, "two", undo=undo)
        await ask("a")

    async with world.call(body, world.journal()) as call:
        async for _ in call.asks():
            break
    assert UNDONE == ["<two>", "<one>"]


class Caller:
    """Runs a body hot without answering its questions, and can be cancelled."""

    def __init__(self, body: Body) -> None:
        self._world = World()
        self._body = body
        self.task = asyncio.create_task(self._run())
        self.journal = self._world.journal()

    async def _run(self) -> None:
        async with self._world.call(self._body, self.journal) as call:
            await call.drive(self._never)

    async def _never(self, _: Ask) -> Answer:
        await asyncio.sleep(60)
        raise AssertionError("no one waits so long")

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.sleep(0)

    async def is_gone(self) -> bool:
        await asyncio.wait([self.task])
        return self.task.cancelled()


async def test_undos_run_to_their_end_when_the_caller_is_cancelled_again() -> None:
    asked = asyncio.Event()
    undoing = asyncio.Event()
    resume = asyncio.Event()

    async def slow_undo(value: Any) -> None:
        undoing.set()
        await resume.wait()
        undo(value)

    async def body(_: Branch) -> None:
        await step(do, "one", undo=undo)
        await step(do, "two", undo=slow_undo)
        asked.set()
        await ask("a")

    caller = Caller(body)
    await asked.wait()
    await caller.cancel()
    await undoing.wait()
    await caller.cancel()
    resume.set()
    assert await caller.is_gone()
    assert UNDONE == ["<two>", "<one>"]


async def test_undos_run_to_their_end_in_a_cancelled_anyio_scope() -> None:
    async def body(_: Branch) -> None:
        await step(do, "one", undo=undo_async)
        scope.cancel()
        await ask("a")

    with anyio.CancelScope() as scope:
        await hot(body)
    assert UNDONE == ["<one>"]


# -- threads and cancellation ----------------------------------------------------------------


class Work:
    """Work in a thread that a test can hold."""

    def __init__(self, outcome: Callable[[], Any] = lambda: do("worked")) -> None:
        self._outcome = outcome
        self._started = threading.Event()
        self.may_end = threading.Event()

    def __call__(self) -> Any:
        self._started.set()
        assert self.may_end.wait(PATIENCE)
        return self._outcome()

    async def has_started(self) -> None:
        assert await asyncio.to_thread(self._started.wait, 10)


async def test_a_cancelled_strand_waits_for_its_thread_and_undoes_the_effect() -> None:
    work = Work()

    async def body(_: Branch) -> None:
        await step(work, name="work", undo=undo)

    caller = Caller(body)
    await work.has_started()
    await caller.cancel()
    work.may_end.set()
    assert await caller.is_gone()
    assert caller.journal.entries["t/work.1"].value == "<worked>"
    assert UNDONE == ["<worked>"]


async def test_the_effect_of_a_thread_that_ends_last_is_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "CANCEL_TIMEOUT", 0.01)
    work = Work()
    undone = asyncio.Event()

    async def undo_and_tell(value: Any) -> None:
        undo(value)
        undone.set()

    async def body(_: Branch) -> None:
        await step(do, "early", undo=undo)
        await step(work, name="work", undo=undo_and_tell)

    caller = Caller(body)
    await work.has_started()
    await caller.cancel()
    assert await caller.is_gone()
    assert UNDONE == ["<early>"]
    work.may_end.set()
    await undone.wait()
    assert UNDONE == ["<early>", "<worked>"]


async def test_a_thread_that_fails_does_not_undo_the_cancellation() -> None:
    work = Work(break_down)

    async def body(_: Branch) -> None:
        with contextlib.suppress(StepFailed):
            await step(work, name="work")
        DONE.append("went on")

    caller = Caller(body)
    await work.has_started()
    await caller.cancel()
    work.may_end.set()
    assert await caller.is_gone()
    assert DONE == ["tried"]
    assert (caller.journal.entries["t/work.1"].error or {})["error"] == "ValueError"


async def test_a_queued_thread_does_not_start_after_a_cancellation() -> None:
    work = Work(lambda: do_async("begun"))

    async def body(_: Branch) -> None:
        await step(work, name="work")

    caller = Caller(body)
    await work.has_started()
    await caller.cancel()
    work.may_end.set()
    assert await caller.is_gone()
    assert (DONE, caller.journal.entries) == ([], {})


async def test_an_async_effect_that_is_cancelled_leaves_no_record() -> None:
    started = asyncio.Event()

    async def effect() -> None:
        started.set()
        await asyncio.sleep(60)

    async def body(_: Branch) -> None:
        await step(effect, undo=undo)

    caller = Caller(body)
    await started.wait()
    await caller.cancel()
    assert await caller.is_gone()
    assert (UNDONE, caller.journal.entries) == ([], {})


HELD_UP: list[Work] = []


def work_held_up() -> Any:
    return HELD_UP[-1]()


async def test_a_thread_of_a_loser_is_recorded_and_undone_if_the_call_fails_rounds_later() -> None:
    HELD_UP.append(Work())

    async def loser() -> None:
        await step(work_held_up, undo=undo)

    async def winner() -> str:
        await HELD_UP[-1].has_started()
        asyncio.get_running_loop().call_soon(HELD_UP[-1].may_end.set)
        return "won"

    async def body(_: Branch) -> None:
        assert await race(loser(), winner()) == "won"
        await ask("a")
        raise ToolError("no")

    with pytest.raises(ToolError):
        await rounds(body)
    assert (DONE, UNDONE) == (["worked"], ["<worked>"])


@pytest.mark.parametrize(
    ("function", "taking_back", "what"),
    [(do, UNDONE.append, "undo"), (functools.partial(do), undo, "step")],
)
async def test_in_a_race_a_step_with_an_undo_must_be_found_by_name(
    function: Callable[[str], Any], taking_back: Callable[[Any], None], what: str
) -> None:
    """A loser's step is not reached again, so only its name leads to its undo."""

    async def racer() -> None:
        await step(function, "x", undo=taking_back)

    async def body(_: Branch) -> None:
        await race(racer())

    with pytest.raises(SerializationError, match=f"the {what} must be found in its module by name"):
        await rounds(body)
    assert DONE == []


async def test_in_a_race_a_step_without_an_undo_needs_no_name() -> None:
    async def body(_: Branch) -> Any:
        return await race(step(lambda: do("x")))

    assert (await rounds(body)).value == "<x>"


# -- the fingerprint of a step -------------------------------------------------------------------


def test_a_renamed_step_function_is_detected() -> None:
    assert pin(do, []) != pin(undo, [])
    assert pin(Work(), []) == pin(Work(), [])


class Order(BaseModel):
    total: int


@pytest.mark.parametrize("changed", [("first", "second"), (Order(total=100), Order(total=200))])
async def test_other_step_arguments_in_a_replay_are_detected(changed: tuple[Any, Any]) -> None:
    changing = iter(changed)

    async def body(_: Branch) -> None:
        await step(lambda order: do(str(order)), next(changing), name="do")
        await ask("a")

    with pytest.raises(NonDeterminismError, match=r"'t/do.1': recorded step \S+, now step"):
        await rounds(body)
    assert [str(changed[0])] == DONE
