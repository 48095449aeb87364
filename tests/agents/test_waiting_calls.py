"""A waiting call is a journal in the store: no process is needed until its questions are answered.

A new agent does each step of these conversations, as another process would.
"""

import asyncio
from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch.agents import QuestionAnsweredError
from anabranch.messages import ElicitReply, SampleReply, SampleRequest
from anabranch.testing import calls
from tests.agents.asking import DONE, Setting, asked, do, names, number, results
from tests.agents.harness import Answering


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


@tool
async def pair(ctx: BranchContext, name: str) -> str:
    """Ask two questions at the same time, then a third."""
    await ctx.step(do, f"{name} begins", ctx.idempotency_key)
    first = await ctx.gather(
        ctx.branch(asked, f"{name} left?"), ctx.branch(asked, f"{name} right?")
    )
    await ctx.step(do, f"{name} {'+'.join(first)}", ctx.idempotency_key)
    return f"{name} {'+'.join(first)} {await asked(ctx, f'{name} sure?')}"


@tool
async def quick(ctx: BranchContext) -> str:
    return "quick"


def setting(*uses: tuple[str, str, dict[str, Any]], **options: Any) -> Setting:
    """A conversation whose model calls tools once, and then repeats their results."""

    def decide(request: SampleRequest) -> SampleReply | str:
        return results(request) or calls(*uses)

    return Setting(decide, tools=[pair, quick], **options)


TWO: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("a", "pair", {"name": "A"}),
    ("b", "pair", {"name": "B"}),
    ("c", "quick", {}),
)


async def test_all_questions_of_all_tools_are_open_together_and_answered_in_any_order() -> None:
    here = setting(*TWO)
    end = await here.begin()
    assert end.kind == "question"
    open_now = await here.ask(end)
    assert sorted(open_now) == ["A left?", "A right?", "B left?", "B right?"]
    assert sorted(names()) == ["A begins", "B begins"]
    for text in ("B right?", "A left?", "B left?"):
        end = await here.agent().answer(open_now[text], number(len(DONE)))
    assert sorted(await here.ask(end)) == ["A right?", "B sure?"]
    assert names()[2:] == ["B 2+2"]
    end = await here.agent().answer((await here.ask(end))["A right?"], number(7))
    open_now = await here.ask(end)
    assert sorted(open_now) == ["A sure?", "B sure?"]
    end = await here.agent().answer(open_now["A sure?"], number(1))
    end = await here.agent().answer(open_now["B sure?"], number(0))
    assert end.text == "A 2+7 1, B 2+2 0, quick"
    assert names()[2:] == ["B 2+2", "A 2+7"]
    kinds = await here.check(end)
    assert kinds.count("results") == 1
    assert (await here.trees.path(end.id)).nodes == (await here.trees.tree(end.thread_id)).nodes


async def test_answers_at_the_same_time_to_different_questions_are_on_one_line() -> None:
    here = setting(("a", "pair", {"name": "A"}))
    open_now = await here.ask(await here.begin())
    ends = await asyncio.gather(
        here.agent().answer(open_now["A left?"], number(1)),
        here.agent().answer(open_now["A right?"], number(2)),
    )
    last = max(ends, key=lambda node: len(node.id))
    kinds = await here.check(last)
    assert kinds == ["user", "assistant", *["question"] * 2, *["answer"] * 2, "question"]
    assert names() == ["A begins", "A 1+2"]


async def test_the_first_answer_wins_and_a_different_one_is_refused() -> None:
    here = setting(("a", "pair", {"name": "A"}))
    open_now = await here.ask(await here.begin())
    question = open_now["A left?"]

    async def add(n: int) -> str:
        try:
            return (await here.agent().add_answer(question, number(n))).id
        except QuestionAnsweredError as error:
            return str(error)

    outcomes = await asyncio.gather(*(add(n) for n in (1, 1, 2, 2)))
    assert len({each for each in outcomes if "differently" not in each}) == 1
    refused = [each for each in outcomes if "differently" in each]
    assert len(refused) == 2
    nodes = (await here.trees.tree((await here.trees.threads(1))[0].id)).nodes
    assert [node.kind for node in nodes].count("answer") == 1
    end = await here.agent().answer(open_now["A right?"], number(3))
    for _ in range(2):
        assert await here.agent().answer(open_now["A right?"], number(3)) == end


async def test_another_answer_does_not_change_other_questions_and_tools() -> None:
    here = setting(*TWO)
    end = await here.begin()
    while open_now := await here.ask(end):
        for question in open_now.values():
            end = await here.agent().answer(question, number(1))
    assert end.text == "A 1+1 1, B 1+1 1, quick"
    nodes = (await here.trees.tree(end.thread_id)).nodes
    [left] = [node for node in nodes if node.text == "A left?"]
    end = await here.agent().answer(left.id, number(5))
    assert list(await here.ask(end)) == ["A sure?"]
    end = await here.agent().answer((await here.ask(end))["A sure?"], number(6))
    assert end.text == "A 5+1 6, B 1+1 1, quick"
    assert [what for what in names() if what.startswith("A")] == ["A begins", "A 1+1", "A 5+1"]
    keys = dict(DONE)
    assert keys["A 5+1"] != keys["A 1+1"]
    assert names().count("B 1+1") == 1
    await here.check(end)


async def test_a_turn_that_was_cut_off_is_found_and_continued() -> None:
    here = setting(("a", "pair", {"name": "A"}))
    agent = here.agent()
    end = await here.begin()
    assert await agent.cut_off(end.thread_id) is None  # the turn waits
    open_now = await here.ask(end)
    await agent.add_answer(open_now["A left?"], number(1))
    assert await agent.cut_off(end.thread_id) is None  # the turn waits for the other question
    last = await agent.add_answer(open_now["A right?"], number(2))
    assert await agent.cut_off(end.thread_id) == last  # the process died here
    found = await here.agent().cut_off(end.thread_id)
    assert found is not None
    end = await here.agent().resume(found)
    assert end.text == "A sure?"
    assert await agent.cut_off(end.thread_id) is None
    end = await here.agent().answer(end.id, number(3))
    assert await agent.cut_off(end.thread_id) is None
    assert names() == ["A begins", "A 1+2"]


async def test_two_processes_that_continue_at_the_same_time_end_on_one_line() -> None:
    here = setting(("a", "pair", {"name": "A"}))
    open_now = await here.ask(await here.begin())
    await here.agent().add_answer(open_now["A left?"], number(1))
    last = await here.agent().add_answer(open_now["A right?"], number(2))
    ends = await asyncio.gather(*(here.agent().resume(last) for _ in range(3)))
    assert {each.text for each in ends} == {"A sure?"}
    done = await here.agent().add_answer(ends[0].id, number(3))
    await asyncio.gather(*(here.agent().resume(done) for _ in range(3)))
    kinds = await here.check(done)
    assert kinds.count("results") == 1
    assert names() == ["A begins", "A 1+2"]


async def test_an_answerer_that_fails_is_an_answer() -> None:
    def fail(_: object) -> ElicitReply:
        raise ValueError("secret")

    here = setting(("a", "pair", {"name": "A"}), user=Answering(fail))
    end = await here.begin()
    assert "ValueError" in end.text
    assert "secret" not in end.text
