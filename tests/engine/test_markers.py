"""Markers: a call that passed the place of a change runs the old code, and other calls the new code."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from anabranch._engine import Answer, Branch, Finished, Journal, Stopped
from anabranch._engine.journal import MARKER
from anabranch.errors import NonDeterminismError
from tests.diary import DONE, note
from tests.engine.harness import Book, World, ask, branch, gather, hot, patched, race, rounds, step

Body = Callable[[Branch], Coroutine[Any, Any, Any]]
pytestmark = pytest.mark.usefixtures("nothing_done")


class Deployed:
    """A call whose code changes: ``is_new`` says which version runs, with the marker or without."""

    def __init__(self, body: Callable[[Deployed], Body]) -> None:
        self.is_new = False
        self.asked: list[str] = []
        self.ways: list[bool] = []
        self._body = body(self)
        self._state = World().journal().dumps()

    async def change(self) -> bool:
        """Return whether the call runs the new code; the first version has no marker, and runs the old."""
        if not self.is_new:
            return False
        self.ways.append(await patched())
        return self.ways[-1]

    async def round(self, *, is_new: bool, answers: Mapping[str, str] | None = None) -> Any:
        """Run a round from the text of the last one; return the body's value if the body has ended."""
        self.is_new, self.ways = is_new, []
        journal = Journal.loads(self._state)
        journal.answer({step_id: Answer(text) for step_id, text in (answers or {}).items()})
        async with World().call(self._body, journal) as call:
            outcome = await call.round()
        if isinstance(outcome, Finished):
            return outcome.value
        self.asked = [each.request for each in outcome.asks]
        self._state = journal.dumps()
        return None

    @property
    def journal(self) -> Journal:
        return Journal.loads(self._state)


def in_sequence(call: Deployed) -> Body:
    async def body(_: Branch) -> Any:
        await ask("before?")
        way = await call.change()
        await step(note, "new" if way else "old")
        return [way, await ask("new?" if way else "old?"), await call.change()]

    return body


async def test_a_new_call_takes_the_new_way_in_every_round() -> None:
    call = Deployed(in_sequence)
    await call.round(is_new=True)
    await call.round(is_new=True, answers={"t/ask.1": "1"})
    assert (call.asked, call.ways) == (["new?"], [True])
    assert call.journal.entries["patched#change"].value is True
    assert await call.round(is_new=True, answers={"t/ask.2": "2"}) == [True, "2", True]
    assert DONE == ["new"]


async def test_a_call_past_the_place_takes_the_old_way_everywhere() -> None:
    call = Deployed(in_sequence)
    await call.round(is_new=False)
    await call.round(is_new=False, answers={"t/ask.1": "1"})
    assert await call.round(is_new=True, answers={"t/ask.2": "2"}) == [False, "2", False]
    assert DONE == ["old"]


async def test_a_call_before_the_place_takes_the_new_way() -> None:
    call = Deployed(in_sequence)
    await call.round(is_new=False)
    await call.round(is_new=True, answers={"t/ask.1": "1"})
    assert (call.asked, call.ways, DONE) == (["new?"], [True], ["new"])


async def test_an_open_question_after_the_place_marks_the_place_as_passed() -> None:
    def asking(call: Deployed) -> Body:
        async def body(_: Branch) -> Any:
            return await ask("new?" if await call.change() else "old?")

        return body

    call = Deployed(asking)
    await call.round(is_new=False)
    await call.round(is_new=True)
    assert (call.asked, call.ways) == (["old?"], [False])


async def test_a_marker_can_be_removed_from_the_code() -> None:
    async def after(_: Branch) -> Any:
        await ask("before?")
        await step(note, "new")
        return await ask("new?")

    call = Deployed(in_sequence)
    await call.round(is_new=True)
    await call.round(is_new=True, answers={"t/ask.1": "1"})
    journal = call.journal
    journal.answer({"t/ask.2": Answer("2")})
    async with World().call(after, journal) as again:
        assert await again.round() == Finished("2")


def beside(*order: str, tasks: bool, delay: float = 0.0) -> Callable[[Deployed], Body]:
    """Return a body whose branches or tasks reach the same marker, each after a question."""

    def version(call: Deployed) -> Body:
        async def inner(name: str) -> Any:
            await asyncio.sleep(delay)  # work without a record
            await step(note, f"{name} begins")
            await asyncio.sleep(delay)
            await ask(f"{name}?", key=None if tasks else name)
            way = await call.change()
            await step(note, f"{name} {'new' if way else 'old'}")
            return [way, await ask(f"{name} {'new' if way else 'old'}?")]

        def inside(name: str) -> Body:
            return lambda _: inner(name)

        async def body(_: Branch) -> Any:
            if tasks:
                return list(await asyncio.gather(*map(inner, order)))
            return list(await gather([branch(inside(name), name=name) for name in order]))

        return body

    return version


def first_question(call: Deployed, name: str) -> str:
    """Return the id of the first question of a branch or task."""
    entries = call.journal.entries.items()
    [place] = [known.rpartition("/")[0] for known, e in entries if e.value == f"{name} begins"]
    [found] = [each for each in call.journal.pending if each.startswith(f"{place}/")]
    return found


IN_EITHER_ORDER = pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
TASKS = pytest.mark.parametrize("tasks", [False, True], ids=["branches", "tasks"])
DELAYS = pytest.mark.parametrize("delay", [0.0, 0.003])


@IN_EITHER_ORDER
@TASKS
@DELAYS
async def test_one_branch_past_the_place_decides_for_all_branches(
    order: tuple[str, str], tasks: bool, delay: float
) -> None:
    """If the other branch stands first, it reaches the marker first and waits for the replay."""
    call = Deployed(beside(*order, tasks=tasks, delay=delay))
    await call.round(is_new=False)
    await call.round(is_new=False, answers={first_question(call, "a"): "A"})
    await call.round(is_new=True, answers={first_question(call, "b"): "B"})
    assert call.ways == [False, False]
    assert sorted(call.asked) == ["a old?", "b old?"]
    assert sorted(DONE) == ["a begins", "a old", "b begins", "b old"]


@IN_EITHER_ORDER
@TASKS
@DELAYS
async def test_a_new_call_takes_the_new_way_next_to_replayed_branches(
    order: tuple[str, str], tasks: bool, delay: float
) -> None:
    """The other branch has recorded a step and asks; its replay must come first."""
    call = Deployed(beside(*order, tasks=tasks, delay=delay))
    await call.round(is_new=True)
    await call.round(is_new=True, answers={first_question(call, "a"): "A"})
    assert (call.ways, sorted(call.asked)) == ([True], ["a new?", "b?"])
    await call.round(is_new=True, answers={first_question(call, "b"): "B"})
    assert (call.ways, sorted(call.asked)) == ([True, True], ["a new?", "b new?"])


async def test_branches_that_reach_a_marker_together_take_one_way() -> None:
    call = Deployed(beside("a", "b", "c", tasks=True, delay=0.003))
    await call.round(is_new=True)
    given = {first_question(call, name): name for name in "ab"}
    await call.round(is_new=True, answers=given)
    assert call.ways == [True, True]


def handing_over(call: Deployed) -> Body:
    """Return a body in which one task passes the place and another task acts on the result."""

    async def body(_: Branch) -> Any:
        passed: asyncio.Queue[bool] = asyncio.Queue()

        async def chooses() -> None:
            await ask("before?")
            await passed.put(await call.change())

        async def acts() -> Any:
            way = await passed.get()
            await step(note, "new" if way else "old")
            return await ask("really?")

        return (await asyncio.gather(chooses(), acts()))[1]

    return body


async def test_a_place_counts_as_passed_after_acts_of_other_tasks() -> None:
    call = Deployed(handing_over)
    await call.round(is_new=False)
    await call.round(is_new=False, answers={"t/~chooses#1/ask.1": "go"})
    assert await call.round(is_new=True, answers={"t/~acts#1/ask.1": "yes"}) == "yes"
    assert (call.ways, DONE) == ([False], ["old"])


@pytest.mark.parametrize("passed", [False, True])
async def test_a_marker_does_not_wait_for_effects_of_other_branches(passed: bool) -> None:
    """Either this branch's records say that it was here, or the replay has passed all other records."""

    def version(call: Deployed) -> Body:
        chosen = asyncio.Event()

        async def chooses() -> Any:
            await ask("first?")
            way = await call.change() if passed else None
            await ask("second?")
            way = way if passed else await call.change()
            chosen.set()
            return way

        async def works() -> Any:
            await step(note, "recorded")
            await ask("go?")
            return await step(chosen.wait)

        async def body(_: Branch) -> Any:
            return await gather([branch(lambda _: chooses(), name="c"), works()])

        return body

    call = Deployed(version)
    await call.round(is_new=False)
    await call.round(is_new=False, answers={"t/c#1/ask.1": "1"})
    answers = {"t/c#1/ask.2": "2", "t/~works#1/ask.1": "go"}
    assert await call.round(is_new=True, answers=answers) == (not passed, True)


@pytest.mark.parametrize("what", ["a task", "a branch", "a question with a key"])
async def test_work_before_the_place_does_not_make_a_new_call_old(what: str) -> None:
    """The call is new; the other branch is replayed after the work has reached the place."""

    def version(call: Deployed) -> Body:
        async def works() -> Any:
            await step(note, "recorded")
            return await ask("other?", key="mine" if what == "a question with a key" else None)

        async def inside(_: Branch) -> Any:
            begun = asyncio.ensure_future(
                branch(lambda _: works(), name="b") if what == "a branch" else works()
            )
            await ask("go?")
            return [await call.change(), await begun]

        async def body(_: Branch) -> Any:
            return await branch(inside)

        return body

    call = Deployed(version)
    await call.round(is_new=True)
    await call.round(is_new=True, answers={"t/inside#1/ask.1": "x"})
    assert (call.ways, call.asked) == ([True], ["other?"])


async def test_a_marker_in_a_branch_outlives_its_folding() -> None:
    def folding(call: Deployed) -> Body:
        async def inner(_: Branch) -> str:
            return str(await step(note, "new" if await call.change() else "old"))

        async def body(_: Branch) -> Any:
            return [await branch(inner), await ask("and?"), await branch(inner)]

        return body

    call = Deployed(folding)
    await call.round(is_new=True)
    assert call.journal.entries.keys() == {"patched#change", "t/inner#1"}
    assert await call.round(is_new=True, answers={"t/ask.1": "x"}) == ["new", "x", "new"]


async def test_records_of_a_lost_race_mark_no_passed_place() -> None:
    def racing(call: Deployed) -> Body:
        async def loses() -> None:
            await step(note, "lost")
            await ask("for ever?")

        async def body(_: Branch) -> Any:
            await race(ask("wins?"), loses())
            await ask("then?")
            return await call.change()

        return body

    call = Deployed(racing)
    await call.round(is_new=True)
    await call.round(is_new=True, answers={"t/ask.1": "x"})
    assert await call.round(is_new=True, answers={"t/ask.2": "x"}) is True


async def test_a_marker_does_not_wait_for_a_lagging_background_task() -> None:
    """The task may run for ever. The call safely runs the old code, and records the decision."""
    lag = asyncio.Event()

    def version(call: Deployed) -> Body:
        async def poll() -> None:
            if lag.is_set():
                await asyncio.sleep(3600)
            await step(note, "polled")
            await asyncio.sleep(3600)

        async def asks() -> None:
            await ask("sure?")
            asked.set()

        async def body(_: Branch) -> Any:
            polling, asking = asyncio.create_task(poll()), asyncio.create_task(asks())
            try:
                await ask("go?")
                way = await call.change()
                await asked.wait()
                await asking
                return way
            finally:
                polling.cancel()

        asked = asyncio.Event()

        return body

    call = Deployed(version)
    await call.round(is_new=True)
    lag.set()
    await call.round(is_new=True, answers={"t/ask.1": "x"})
    assert (call.ways, call.asked) == ([False], ["sure?"])
    lag.clear()
    assert await call.round(is_new=True, answers={"t/~asks#1/ask.1": "y"}) is False


async def test_a_strand_cancelled_at_a_marker_delays_no_other_strand() -> None:
    def version(call: Deployed) -> Body:
        async def late() -> Any:
            if call.is_new:
                await asyncio.sleep(0.01)
            await step(note, "late")
            return await ask("late?")

        async def body(_: Branch) -> Any:
            beside = asyncio.ensure_future(late())
            await ask("go?")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.001):
                    await call.change()
            return await beside

        return body

    call = Deployed(version)
    await call.round(is_new=False)
    answers = {"t/ask.1": "go", "t/~late#1/ask.1": "end"}
    assert await call.round(is_new=True, answers=answers) == "end"
    assert call.ways == []


async def test_a_hot_run_of_a_new_call_takes_the_new_way() -> None:
    call = Deployed(in_sequence)
    call.is_new = True
    assert await hot(in_sequence(call)) == [True, "NEW?", True]


@pytest.mark.parametrize(
    ("passed", "delay", "way"),
    [(False, 0.0, True), (False, 0.01, False), (True, 0.0, False)],
    ids=["not passed", "at work", "passed"],
)
async def test_a_hot_run_waits_for_the_replay_of_other_branches_but_not_for_their_work(
    passed: bool, delay: float, way: bool
) -> None:
    """A hot run has no round that ends in a pause. The old code is safe."""

    def version(call: Deployed) -> Body:
        async def other() -> Any:
            await asyncio.sleep(delay if call.is_new else 0)
            await step(note, "other")
            await call.change() if passed else None
            return await ask("other?")

        async def comes_first() -> Any:
            await ask("go?")
            return await call.change()

        async def body(_: Branch) -> Any:
            return await asyncio.gather(comes_first(), other())

        return body

    call = Deployed(version)
    await call.round(is_new=False)
    journal = call.journal
    journal.answer({"t/~comes_first#1/ask.1": Answer("go")})
    call.is_new = True
    async with World().call(version(call), journal) as again:
        assert await again.drive(lambda _: asyncio.sleep(0, Answer("x"))) == [way, "x"]


async def test_a_marker_is_written_before_the_effect_that_follows() -> None:
    book = Book()

    def look(what: str) -> list[str]:
        return [*book.entries, what]

    async def body(_: Branch) -> Any:
        return await step(look, "new") if await patched() else "old"

    assert (await rounds(body, world=World(recorder=book))).value == ["patched#change", "new"]
    assert book.entries["patched#change"].kind == MARKER


async def test_a_rehearsal_decides_a_marker_like_the_round() -> None:
    call = Deployed(in_sequence)
    await call.round(is_new=False)
    journal = call.journal
    call.is_new = True
    async with World().call(in_sequence(call), journal) as again:
        assert await again.replay() == Stopped(("t/ask.1",))
    journal = call.journal
    journal.answer({"t/ask.1": Answer("x")})
    async with World().call(in_sequence(call), journal) as again:
        assert await again.replay() == Stopped(("t/note.1",))
    assert call.ways == [True]


async def test_a_cleanup_after_the_round_records_no_marker() -> None:
    ways: list[bool] = []

    async def body(_: Branch) -> None:
        try:
            await ask("a?")
        finally:
            ways.append(await patched())

    run = await rounds(body)
    assert (run.brackets, ways) == ([["a?"]], [False, True])


async def test_no_marker_is_decided_after_a_difference() -> None:
    async def body(_: Branch) -> None:
        with contextlib.suppress(NonDeterminismError):
            await step(note, "other")
        with pytest.raises(NonDeterminismError):
            await patched()

    call = Deployed(in_sequence)
    await call.round(is_new=False)
    await call.round(is_new=False, answers={"t/ask.1": "1"})
    journal = call.journal
    async with World().call(body, journal) as again:
        with pytest.raises(NonDeterminismError):
            await again.round()
    assert "patched#change" not in journal.entries
