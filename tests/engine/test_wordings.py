"""Questions whose words a deployment changes: only answered questions and recorded steps pin the code."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from anabranch._engine import REFUSED, Answer, Branch, Finished, Journal, Stopped, fingerprint
from anabranch._engine.open_asks import REFUSALS
from anabranch.errors import NonDeterminismError
from tests.engine.harness import World, branch, first_round, gather, here, race, sleep_until, step

Body = Callable[[Branch], Coroutine[Any, Any, Any]]


async def put(question: str, kind: Any = "elicit", key: str | None = None) -> Any:
    """Ask until the answer fits this question."""
    call, scope = here()
    first = call.cursor.new_id(scope, "ask", key)
    attempt = 0
    while True:
        attempt += 1
        step_id, asked = call.cursor.new_attempt(first, attempt), fingerprint(question)
        entry = await call.operations.ask(scope, step_id, kind, asked, lambda: question)
        if entry.kind != REFUSED:
            return entry.value


def asking(question: str, kind: Any = "elicit") -> Body:
    async def body(_: Branch) -> Any:
        return await put(question, kind)

    return body


async def next_round(
    body: Body,
    journal: Journal,
    answers: Mapping[str, str] | None = None,
    world: World | None = None,
) -> tuple[Journal, Any]:
    """Run a round with answers that no body has read; return the journal and value for the next round."""
    journal.answer({step_id: Answer(text) for step_id, text in (answers or {}).items()})
    async with (world or World()).call(body, journal) as call:
        outcome = await call.round()
    if isinstance(outcome, Finished):
        return journal, outcome.value
    return Journal.loads(journal.dumps()), {each.step_id: each.request for each in outcome.asks}


@pytest.mark.parametrize("kind", ["elicit", "url", "sample"])
async def test_an_open_question_is_asked_again_in_its_new_words(kind: Any) -> None:
    journal = await first_round(asking("really?"))
    journal, asked = await next_round(asking("REALLY?", kind), journal)
    assert asked == {"t/ask.1": "REALLY?"}
    assert journal.pending == {"t/ask.1": (kind, fingerprint("REALLY?"))}
    assert await next_round(asking("REALLY?", kind), journal, {"t/ask.1": "yes"}) == (
        journal,
        "yes",
    )


@pytest.mark.parametrize("kind", ["elicit", "url", "sample"])
async def test_an_answer_to_the_old_words_is_refused_now_and_in_every_replay(kind: Any) -> None:
    journal = await first_round(asking("really?"))
    new = asking("REALLY?", kind)
    journal, asked = await next_round(new, journal, {"t/ask.1": "to the old"})
    assert asked == {"t/ask.1~2": "REALLY?"}
    assert journal.entries["t/ask.1"].kind == REFUSED
    journal, asked = await next_round(new, journal)
    assert asked == {"t/ask.1~2": "REALLY?"}
    assert (await next_round(new, journal, {"t/ask.1~2": "to the new"}))[1] == "to the new"


async def test_a_question_with_changing_words_is_a_difference() -> None:
    """A random question would be asked for ever."""
    journal = await first_round(asking("0"))
    for number in range(1, REFUSALS + 1):
        answers = dict.fromkeys(journal.pending, "?")
        journal, asked = await next_round(asking(str(number)), journal, answers)
        assert asked == {f"t/ask.1~{number + 1}": str(number)}
    answers = dict.fromkeys(journal.pending, "?")
    with pytest.raises(NonDeterminismError, match=rf"t/ask\.1~{REFUSALS + 1}"):
        await next_round(asking("last"), journal, answers)


async def test_an_answer_read_by_the_body_pins_its_question() -> None:
    async def two(_: Branch) -> None:
        await put("first?")
        await put("second?")

    async def changed(_: Branch) -> None:
        await put("FIRST?")
        await put("second?")

    journal, _ = await next_round(two, await first_round(two), {"t/ask.1": "yes"})
    with pytest.raises(NonDeterminismError, match=r"t/ask\.1"):
        await next_round(changed, journal)


async def test_only_the_changed_of_several_questions_is_asked_again() -> None:
    """In concurrent branches, next to a recorded step."""
    done: list[str] = []

    def version(left: str, right: str) -> Body:
        async def inner(_: Branch) -> Any:
            await step(done.append, "once")
            return await put(left)

        async def body(_: Branch) -> Any:
            return await gather([branch(inner, name="b"), put(right), put("same?")])

        return body

    journal = await first_round(version("left?", "right?"))
    answers = {"t/b#1/ask.1": "L", "t/~put#2/ask.1": "S"}
    journal, asked = await next_round(version("LEFT?", "RIGHT?"), journal, answers)
    assert asked == {"t/b#1/ask.1~2": "LEFT?", "t/~put#1/ask.1": "RIGHT?"}
    answers = {"t/b#1/ask.1~2": "L2", "t/~put#1/ask.1": "R2"}
    _, value = await next_round(version("LEFT?", "RIGHT?"), journal, answers)
    assert value == ("L2", "R2", "S")
    assert done == ["once"]


async def test_a_refused_answer_wins_no_race() -> None:
    def version(left: str) -> Body:
        async def body(_: Branch) -> Any:
            return [await race(put(left), put("right?")), await put("end?")]

        return body

    journal = await first_round(version("left?"))
    journal, asked = await next_round(version("LEFT?"), journal, {"t/~put#1/ask.1": "old"})
    assert asked == {"t/~put#1/ask.1~2": "LEFT?", "t/~put#2/ask.1": "right?"}
    journal, asked = await next_round(version("LEFT?"), journal, {"t/~put#2/ask.1": "right"})
    assert asked == {"t/ask.1": "end?"}
    assert (await next_round(version("LEFT?"), journal, {"t/ask.1": "e"}))[1] == ["right", "e"]


async def test_an_open_question_that_the_new_code_does_not_ask_is_withdrawn() -> None:
    async def changed(_: Branch) -> str:
        return "done"

    journal, value = await next_round(changed, await first_round(asking("really?")))
    assert (value, journal.pending) == ("done", {})


async def test_an_answer_to_a_question_that_the_new_code_does_not_ask_is_a_difference() -> None:
    async def changed(_: Branch) -> str:
        return "done"

    journal = await first_round(asking("really?"))
    with pytest.raises(NonDeterminismError, match=r"t/ask\.1.*not reached"):
        await next_round(changed, journal, {"t/ask.1": "yes"})


async def test_a_step_may_take_the_place_of_an_open_question_and_not_of_an_answer() -> None:
    async def stepping(_: Branch) -> Any:
        return [await step(str, 1, name="ask"), await put("and now?")]

    journal = await first_round(asking("really?"))
    text = journal.dumps()
    journal, asked = await next_round(stepping, journal)
    assert asked == {"t/ask.2": "and now?"}
    assert journal.entries["t/ask.1"].kind == "step"
    with pytest.raises(NonDeterminismError, match=r"t/ask\.1.*elicit.*step"):
        await next_round(stepping, Journal.loads(text), {"t/ask.1": "yes"})


async def test_an_open_sleep_ends_at_its_new_time() -> None:
    world = World()
    start = world.clock.now()

    def until(hours: int) -> Body:
        async def body(_: Branch) -> str:
            await sleep_until(start + 3600 * hours)
            return "awake"

        return body

    journal = await first_round(until(2), world=world)
    world.clock.advance(3600)
    assert (await next_round(until(1), journal, world=world))[1] == "awake"


async def test_an_answer_later_than_the_clock_to_the_old_words_is_refused() -> None:
    """The answer is held back until the body has passed its sleep and asks again."""
    world = World()
    end = world.clock.now() + 3600

    def version(question: str) -> Body:
        async def body(_: Branch) -> Any:
            return await gather([put(question), sleep_until(end)])

        return body

    journal = await first_round(version("really?"), world=world)
    world.clock.advance(7200)
    journal, asked = await next_round(version("REALLY?"), journal, {"t/~put#1/ask.1": "y"}, world)
    assert asked == {"t/~put#1/ask.1~2": "REALLY?"}
    answers = {"t/~put#1/ask.1~2": "yes"}
    assert (await next_round(version("REALLY?"), journal, answers, world))[1] == ("yes", None)


async def test_a_rehearsal_stops_at_a_changed_question() -> None:
    journal = await first_round(asking("really?"))
    text = journal.dumps()
    async with World().call(asking("REALLY?"), journal) as call:
        assert await call.replay() == Stopped(("t/ask.1",))
    journal = Journal.loads(text)
    journal.answer({"t/ask.1": Answer("to the old")})
    async with World().call(asking("REALLY?"), journal) as call:
        assert await call.replay() == Stopped(("t/ask.1~2",))


async def test_a_rehearsal_withdraws_an_unanswered_question_that_the_body_does_not_ask() -> None:
    async def changed(_: Branch) -> None:
        await step(str, 1)

    for body, outcome in ((changed, Stopped(("t/str.1",))), (_nothing, Finished(None))):
        async with World().call(body, await first_round(asking("really?"))) as call:
            assert await call.replay() == outcome


async def _nothing(_: Branch) -> None:
    pass


async def test_a_hot_run_continues_with_the_new_words() -> None:
    journal = await first_round(asking("really?"))
    journal.answer({"t/ask.1": Answer("to the old")})
    async with World().call(asking("REALLY?"), journal) as call:
        async for each in call.asks():
            assert (each.step_id, each.request) == ("t/ask.1~2", "REALLY?")
            call.answer(each.step_id, Answer("to the new"))
        assert await call.result() == "to the new"
    assert not journal.unread
