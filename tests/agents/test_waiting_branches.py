"""A question in a branch of the model ends the turn; the branch continues from its nodes.

A new agent does each step of these conversations, as another process would.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from pydantic import JsonValue

from anabranch._asking import estimate_tokens, prompt_tokens, said
from anabranch.agents import (
    BranchResumed,
    QuestionAnsweredError,
    QuestionExpiredError,
    TurnLimitError,
    TurnLimits,
    branches_in,
)
from anabranch.agents._turn_limits import Spent, spent_in_turn
from anabranch.folding import BranchService
from anabranch.messages import SampleReply, SampleRequest, Usage
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock, calls
from tests.agents.asking import (
    DONE,
    Setting,
    asks,
    deciding,
    forks,
    names,
    number,
    program,
    results,
)
from tests.agents.harness import heard
from tests.agents.memory import MemoryTrees
from tests.randomised import times
from tests.suites.tree_samples import a_node, begin_caller


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


both_ways = pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "sequential"])

TWO = deciding(go=forks("a", "b", "c"), a=asks("A", twice=True), b=asks("B"), c="nothing to ask")
SUMMARY = (
    "said: 3/3 branches completed ({}, iterative).\n\nb1 (a):\nsaid: A={}\n\nb2 (b):\nsaid: B={}\n\n"
    "b3 (c):\nnothing to ask\n\nNot recombined, as none was asked for."
)


@pytest.mark.parametrize("first", ["A?", "B?"])
async def test_each_branch_continues_from_its_question_and_the_last_ends_the_tool(
    first: str,
) -> None:
    here = Setting(TWO)
    end = await here.begin()
    assert end.tool_uses
    asked = await here.ask(end)
    assert sorted(asked) == ["A?", "B?"]
    end = await here.agent().answer(asked[first], number(1))
    asked = await here.ask(end)
    assert sorted(asked) == sorted({"A?": ["A again?", "B?"], "B?": ["A?"]}[first])
    requests = len(here.model.requests)
    assert requests == 4 + (first == "B?")  # finished branches are not asked again
    end = await here.answer_all(end)
    said = {"A?": ("1+1", "2"), "B?": ("1+2", "1")}[first]
    assert end.text == SUMMARY.format("parallel", *said)
    assert sorted(names()) == sorted(["A begins", "B begins", f"A={said[0]}", f"B={said[1]}"])
    keys = [{key.partition(":")[0] for what, key in DONE if what.startswith(name)} for name in "AB"]
    assert [len(each) for each in keys] == [1, 1]
    assert len(here.model.requests) == 4 + 2 + 1


async def test_a_sequential_branch_starts_when_the_previous_branch_has_ended() -> None:
    here = Setting(
        deciding(
            go=forks("a", "b", "c", parallel=False),
            a=asks("A", twice=True),
            b=asks("B"),
            c="nothing to ask",
        )
    )
    end = await here.begin()
    assert names() == ["A begins"]
    end = await here.answer_all(end)
    assert end.text == SUMMARY.format("sequential", "1+2", "3")
    assert names() == ["A begins", "A=1+2", "B begins", "B=3"]


async def test_a_turn_waits_for_a_user_when_a_branch_waits_for_the_one_before_it() -> None:
    here = Setting(deciding(go=forks("a", "b", "c", parallel=False), a="done", b=asks("B"), c="-"))
    end = await here.begin()
    assert list(await here.ask(end)) == ["B?"]
    assert await here.agent().cut_off(end.thread_id) is None


async def test_a_branch_is_shown_to_wait_while_its_question_is_open() -> None:
    here = Setting(TWO)
    end = await here.begin()

    async def shown() -> dict[str, str]:
        branches = branches_in(await here.trees.tree(end.thread_id))
        return {each.description[-1]: each.state for each in branches.values()}

    assert await shown() == {"a": "waits for you", "b": "waits for you", "c": "done"}
    await here.agent().answer((await here.ask(end))["B?"], number(1))
    assert await shown() == {"a": "waits for you", "b": "done", "c": "done"}


async def test_questions_inside_and_outside_of_branches_are_open_at_the_same_time() -> None:
    both = calls(
        ("fork", "branch_self", {"prompts": ["a"], "allow_work": True}),
        ("own", "ask", {"name": "M"}),
    )
    for order in (["A?", "M?"], ["M?", "A?"]):
        DONE.clear()
        here = Setting(deciding(go=both, a=asks("A")))
        end = await here.begin()
        assert sorted(await here.ask(end)) == ["A?", "M?"]
        for text in order:
            end = await here.agent().answer((await here.ask(end))[text], number(7))
        assert end.text.startswith("said: 1/1 branches completed")
        assert "said: A=7" in end.text
        assert end.text.endswith("M=7")
        assert sorted(names()) == ["A begins", "A=7", "M begins", "M=7"]
        kinds = await here.check(end)
        assert kinds.count("results") == 2


async def test_answers_in_several_processes_at_the_same_time_end_in_one_result() -> None:
    here = Setting(TWO)
    asked = await here.ask(await here.begin())
    ends = await asyncio.gather(
        *(here.agent().answer(asked[text], number(5)) for text in ("A?", "B?"))
    )
    left = await here.agent().open_questions(ends[0])
    end = await here.agent().answer(left[0].id, number(6))
    assert end.text == SUMMARY.format("parallel", "5+6", "5")
    kinds = await here.check(end)
    assert kinds.count("results") == 3
    assert len(here.model.requests) == 4 + 2 + 1


async def test_a_process_that_dies_leaves_work_that_others_continue() -> None:
    """The process dies while a branch waits for its model; the other branch waits for an answer."""

    class Died(BaseException):
        """The process has ended."""

    alive: list[bool] = []

    def decide(request: SampleRequest) -> SampleReply | str:
        if not alive and results(request) == "B=1":
            raise Died
        return TWO(request)

    here = Setting(decide)
    asked = await here.ask(await here.begin())
    with pytest.raises(Died):
        await here.agent().answer(asked["B?"], number(1))
    alive.append(True)
    [thread] = await here.trees.threads(1)
    found = await here.agent().cut_off(thread.id)
    assert found is not None
    here.events.clear()
    end = await here.agent().resume(found)
    [resumed] = [event for event in here.events if isinstance(event, BranchResumed)]
    assert [node.kind for node in resumed.path] == [
        *("branch", "assistant", "question", "answer", "results")
    ]
    end = await here.answer_all(end)
    assert end.text == SUMMARY.format("parallel", "1+2", "1")
    assert names().count("B=1") == names().count("B begins") == 1


async def test_how_a_branch_has_failed_is_read_from_its_nodes() -> None:
    def decide(request: SampleRequest) -> SampleReply | str:
        if heard(request).endswith("c"):
            raise ValueError("secret")
        return decide_rest(request)

    decide_rest = deciding(go=forks("a", "b", "c"), a=asks("A"), b=asks("B"))
    here = Setting(decide)
    end = await here.begin()
    requests = len(here.model.requests)
    end = await here.answer_all(end)
    assert "2/3 branches completed" in end.text
    assert "b3 (c):\nFailed: An unexpected error (ValueError)" in end.text
    assert len(here.model.requests) == requests + 3


async def test_usage_of_a_branch_at_its_limit_is_read_from_its_nodes() -> None:
    looping = calls(("loop", "nothing", {}), text="Looking.")

    def decide(request: SampleRequest) -> SampleReply | str:
        if heard(request).startswith("(forced"):
            return "Summed up."
        in_loop = any(message.text.endswith("(self-prompt): b") for message in request.messages)
        return looping if in_loop else rest(request)

    rest = deciding(go=forks("a", "b"), a=asks("A"))
    here = Setting(decide, limits=TurnLimits(max_requests=3))
    end = await here.answer_all(await here.begin())
    assert "b2 (b):\nFailed: The turn stopped: it has used 3 of 3 requests" in end.text
    assert "Before that: Summed up." in end.text


async def test_an_answer_in_an_open_branch_is_final() -> None:
    here = Setting(TWO)
    asked = await here.ask(await here.begin())
    end = await here.agent().answer(asked["B?"], number(1))
    assert await here.agent().answer(asked["B?"], number(1)) == end
    with pytest.raises(QuestionAnsweredError):
        await here.agent().answer(asked["B?"], number(2))
    end = await here.answer_all(end)
    other = await here.agent().answer(asked["B?"], number(2))  # next to the result, in the branch
    assert other.text == "said: B=2"
    assert names().count("B begins") == 1


async def test_skipped_questions_cancel_the_tools_and_end_the_branches() -> None:
    here = Setting(TWO)
    end = await here.begin()
    requests = len(here.model.requests)
    end = await here.agent().cancel_questions(end)
    assert end.kind == "results"
    assert len(here.model.requests) == requests
    assert sorted(names()) == ["A begins", "A=cancel+cancel", "B begins", "B=cancel"]
    end = await here.agent().resume(end)
    assert end.text.startswith("said: 1/3 branches completed")
    assert "b1 (a):\nInterrupted before it was done." in end.text
    assert await here.ask(end) == {}
    await here.check(end)


async def test_a_message_next_to_branches_closes_their_questions() -> None:
    here = Setting(TWO)
    end = await here.begin()
    agent = here.agent()
    end = await agent.say(end.thread_id, "never mind")
    assert await here.ask(end) == {}
    await here.check(end)


async def test_a_question_below_an_ended_branch_belongs_to_the_conversation() -> None:
    here = Setting(deciding(go=forks("c"), c="nothing to ask", more=asks("A")))
    await here.begin()
    [thread] = await here.trees.threads(1)
    nodes = (await here.trees.tree(thread.id)).nodes
    [leaf] = [node for node in nodes if node.text == "nothing to ask"]
    end = await here.agent().say(thread.id, "more", at=leaf.id)
    assert end.kind == "question"
    end = await here.answer_all(end)
    assert end.text == "said: A=1"


# -- folding -------------------------------------------------------------------------------------


def folds(*names: str, **more: Any) -> SampleReply:
    return calls(
        *(
            (
                f"c-{name}",
                "branch_create",
                {"description": name, "prompt": f"Please {name}. ", **more},
            )
            for name in names
        )
    )


async def test_a_folding_branch_continues_and_returns() -> None:
    branches = BranchService(open_branch_store("memory:"), clock=ManualClock())

    def decide(request: SampleRequest) -> SampleReply | str:
        said = heard(request)
        for name in ("x", "y"):
            if f"Please {name}." in said:
                return asks(name)
        found = results(request)
        in_branch = any(message.text.startswith("(branch br_") for message in request.messages)
        if in_branch and found.partition("=")[0] in {"x", "y"}:
            return calls(("r", "branch_return", {"message": f"found {found}"}))
        return folds("x", "y") if said == "go" else f"said: {found}"

    here = Setting(decide, branches=branches)
    end = await here.begin()
    assert sorted(await here.ask(end)) == ["x?", "y?"]
    before = {each.id: each.budget_used for each in await branches.branches(end.thread_id)}
    end = await here.answer_all(end)
    assert end.text == "said: found x=1, found y=2"
    assert sorted(names()) == ["x begins", "x=1", "y begins", "y=2"]
    records = await branches.branches(end.thread_id)
    assert {each.status for each in records} == {"completed"}
    assert all(each.budget_used > before[each.id] for each in records)


async def test_a_folding_branch_past_its_deadline_reports_it_and_refuses_answers() -> None:
    clock = ManualClock()
    branches = BranchService(open_branch_store("memory:"), clock=clock)
    here = Setting(deciding(go=folds("x"), x=asks("x")), branches=branches, clock=clock)
    begun = await here.begin()
    asked = await here.ask(begun)
    clock.advance(1e6)
    with pytest.raises(QuestionExpiredError):
        await here.agent().answer(asked["x?"], number(1))
    end = await here.agent().resume(begun)
    assert "This branch was ended before it returned" in end.text
    await here.check(end)


async def test_a_folding_branch_with_skipped_questions_is_closed() -> None:
    branches = BranchService(open_branch_store("memory:"), clock=ManualClock())
    here = Setting(deciding(go=folds("x"), x=asks("x")), branches=branches)
    end = await here.agent().cancel_questions(await here.begin())
    assert names() == ["x begins", "x=cancel"]
    [record] = await branches.branches(end.thread_id)
    assert not record.is_open
    await here.check(end)


async def test_a_folding_branch_lost_with_its_process_reports_the_loss() -> None:
    here = Setting(
        deciding(go=folds("x"), x=asks("x")), branches=BranchService(open_branch_store("memory:"))
    )
    asked = await here.ask(await here.begin())
    here.branches = BranchService(open_branch_store("memory:"))
    end = await here.agent().answer(asked["x?"], number(1))
    assert "There is no branch" in end.text
    await here.check(end)


async def test_a_folding_branch_that_had_ended_is_closed_by_the_next_process() -> None:
    """A process died between the last reply of the branch and its record."""
    here = Setting(deciding(go="unused"), branches=BranchService(open_branch_store("memory:")))
    assert here.branches is not None
    agent = here.agent()
    [message] = await agent.put((await agent.begin()).id, [(None, "go")])
    node, thread = agent.dependencies.node, message.thread_id
    caller = node(thread, message.id, "assistant", folds("y").content)
    record = (await here.branches.create("y", "y", session_id=thread)).branch
    use = caller.tool_uses[0].id
    data: dict[str, JsonValue] = {"tool_use_id": use, "branch_id": record.id}
    start = node(thread, caller.id, "branch", "y", data=data)
    ended = node(thread, start.id, "assistant", "y is done")
    await agent.add([caller])
    await agent.add([start, ended], head=False)
    end = await here.agent().resume(caller)
    assert end.text == "said: y is done"
    assert [each.is_open for each in await here.branches.branches(thread)] == [False]


# -- limits over several processes -----------------------------------------------------------


def priced(decide: Callable[[SampleRequest], Any], spent: list[int], *, reported: bool) -> Any:
    """The model reports for each reply the maximum that its request allows, or less."""

    def reply(request: SampleRequest) -> SampleReply:
        made = decide(request)
        given = made if isinstance(made, SampleReply) else calls(text=made)
        least, text = prompt_tokens(request), estimate_tokens(said(given))
        used = Usage(input_tokens=least, output_tokens=min(text, request.max_tokens))
        spent.append(used.total_tokens)
        return given.model_copy(update={"usage": used if reported else None})

    return reply


@pytest.mark.parametrize("reported", [True, False], ids=["reported", "estimated"])
@pytest.mark.parametrize("seed", range(times(8, gate=3)))
async def test_a_turn_over_several_processes_keeps_to_its_limits(seed: int, reported: bool) -> None:
    random, spent = Random(seed), list[int]()
    limits = TurnLimits(
        max_tokens=random.choice([1_500, 6_000, 20_000, 80_000]),
        max_branches=random.choice([5, 12, 40]),
        max_reply_tokens=60,
        max_concurrent_requests=random.choice([7, 50]),
    )
    here = Setting(priced(program(seed), spent, reported=reported), limits=limits)
    with suppress(TurnLimitError):
        await here.answer_all(await here.begin())
    assert sum(spent) <= (limits.max_tokens or 0)
    [thread] = await here.trees.threads(2)
    opened = [each for each in (await here.trees.tree(thread.id)).nodes if each.kind == "branch"]
    assert len(opened) <= limits.max_branches


async def test_a_turn_that_continues_in_another_process_starts_with_its_usage() -> None:
    spent = list[int]()
    decide = {"go": asks("A"), "": "done"}
    model = priced(lambda request: decide[heard(request)], spent, reported=True)
    here = Setting(model, limits=TurnLimits(max_tokens=100_000))
    await here.answer_all(await here.begin())
    most = sum(spent) - 1
    spent.clear()
    again = Setting(model, limits=TurnLimits(max_tokens=most))
    with pytest.raises(TurnLimitError) as refused:
        await again.answer_all(await again.begin())
    assert (len(spent), refused.value.used) == (1, spent[0])


async def test_usage_after_an_answer_counts_when_a_turn_continues_at_the_question() -> None:
    trees, used = MemoryTrees(), Usage(input_tokens=7, output_tokens=2)
    await begin_caller(trees)
    question = a_node("question", "b", "question")
    await trees.append(
        [
            question,
            a_node("answer", "question", "answer"),
            a_node("results", "answer", "results"),
            a_node("reply", "results", "assistant", usage=used),
        ]
    )
    assert await spent_in_turn(trees, question) == Spent(used.total_tokens)
