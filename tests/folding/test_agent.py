"""Folding in an agent: the agent works in a branch, and keeps only the branch's return value."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch.agents import BranchSelf, TurnLimits
from anabranch.folding import InjectedItem
from anabranch.messages import SampleReply, SampleRequest, Usage
from anabranch.testing import calls
from tests.agents.harness import fork, interrupted
from tests.folding.harness import (
    SEEN,
    Learning,
    Reply,
    create,
    heard,
    in_branch,
    look,
    returns,
    talk,
)


def creates(*descriptions: str, **more: Any) -> SampleReply:
    return calls(
        *(
            (f"c{name}", "branch_create", {"description": name, "prompt": f"Do {name}.", **more})
            for name in descriptions
        )
    )


def script(*replies: Reply) -> Callable[[SampleRequest], Reply]:
    left = list(replies)
    return lambda request: left.pop(0)


async def test_only_the_call_and_the_message_remain_after_the_return() -> None:
    """Excludes folding only in a record: the branch's messages must not be in its parent's requests."""
    chat = await talk(
        script(
            create(),
            calls(("l", "look", {"what": "this"})),
            calls(("m", "look", {"what": "that"})),
            returns("There are two."),
            "Two, I hear.",
        ),
        look,
    )
    end = await chat.say("How many are there?")
    messages = await chat.path(end)
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant"]
    assert await chat.results((await chat.of_kind("results"))[-1]) == {"c": "There are two."}
    [branch] = await chat.records()
    assert (branch.status, branch.result) == ("completed", "There are two.")
    assert branch.budget_used > 200, "what its tools have returned is in its context"
    first, second, *_, last = [request.messages for request in chat.model.requests]
    assert second[: len(first)] == first, "a branch begins with the conversation"
    assert last[:2] == second[:2]
    [start] = await chat.of_kind("branch")
    assert start.data["branch_id"] == branch.id
    assert "Please count." in start.text
    await chat.check()


async def test_a_branch_that_only_answers_returns_its_answer() -> None:
    chat = await talk(script(create(), "Seven.", "It is seven."))
    await chat.say("How many?")
    [branch] = await chat.records()
    assert (branch.status, branch.result, branch.error) == ("completed", "Seven.", None)


async def test_a_folded_branch_can_be_looked_at_and_continued() -> None:
    chat = await talk(script(create(), returns("Seven."), "It is seven.", "Because I counted."))
    end = await chat.say("How many?")
    inside = (await chat.of_kind("results"))[0]
    assert "Returned." in (await chat.results(inside)).values()
    more = await chat.say("Why?", at=inside.id)
    assert more.text == "Because I counted."
    assert any("(branch br_" in message.text for message in await chat.path(more))
    assert not any("(branch br_" in message.text for message in await chat.path(end))
    await chat.check()


async def test_branches_of_one_reply_are_open_side_by_side() -> None:
    both = asyncio.Barrier(2)

    async def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        if said == "Go":
            return creates("left", "right")
        if in_branch(request):
            await both.wait()
            return returns(f"done: {request.messages[-1].text.split('Do ')[1].split('.')[0]}")
        return said

    chat = await talk(decide)
    end = await chat.say("Go")
    assert end.text == "done: left | done: right"
    assert {branch.depth for branch in await chat.records()} == {1}
    await chat.check()


async def test_a_nested_branch_is_charged_to_the_outer_branch() -> None:
    chat = await talk(
        script(create("outer"), create("inner", "d"), returns("1"), returns("2"), "three")
    )
    await chat.say("Go")
    outer, inner = await chat.records()
    assert (inner.parent_id, inner.depth) == (outer.id, 2)
    assert outer.budget_used > inner.budget_used
    await chat.check()


async def test_a_return_from_the_root_is_refused() -> None:
    chat = await talk(lambda request: heard(request) if len(request.messages) > 1 else returns("?"))
    assert "FOLD006" in (await chat.say("Go")).text


async def test_a_branch_of_branch_self_cannot_return_from_the_branch_around_it() -> None:
    def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        if said == "Go":
            return create()
        if "(self-prompt)" in said:
            return returns("from the inside")
        if "FOLD006" in said:
            return "I see."
        if "branches completed" in said:
            return returns("from the outside")
        return fork("try", allow_work=True) if in_branch(request) else said

    chat = await talk(decide, BranchSelf())
    assert (await chat.say("Go")).text == "from the outside"
    await chat.check()


async def test_a_branch_without_budget_for_its_next_request_returns_its_text() -> None:
    def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        if said == "Go":
            return create(budget=400)
        if said.startswith("(forced to return)"):
            return "Found two of three."
        return calls(("l", "look", {"what": "more"})) if in_branch(request) else said

    chat = await talk(decide, look)
    end = await chat.say("Go")
    assert end.text.startswith("Found two of three.\n\n(This branch was ended before it returned:")
    [branch] = await chat.records()
    assert (branch.status, branch.result) == ("completed", "Found two of three.")
    assert (branch.error or "").startswith("budget exhausted: ")
    assert branch.budget_used <= 400
    await chat.check()


async def test_a_branch_without_tokens_for_a_reply_ends_with_its_last_text() -> None:
    def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        if said == "Go":
            return create(budget=100)
        if in_branch(request):
            return calls(("l", "look", {"what": "more"}), text="I begin." + " So." * 60)
        return said

    chat = await talk(decide, look, summary_budget_ratio=0)
    assert (await chat.say("Go")).text.startswith("I begin. So.")
    [branch] = await chat.records()
    assert branch.status == "completed"
    assert (branch.error or "").startswith("budget exhausted")


async def test_a_reply_that_uses_up_the_budget_may_still_return() -> None:
    long = "word " * 90
    chat = await talk(script(create(budget=60), returns(long), "ok"))
    await chat.say("Go")
    [branch] = await chat.records()
    assert (branch.status, branch.result, branch.error) == ("completed", long, None)
    assert branch.budget_used > branch.budget_total, "one reply at most, and recorded"


async def test_tokens_are_those_that_the_provider_reports() -> None:
    """Excludes budgets that nothing charges: each reply of a real turn is charged."""
    chat = await talk(
        script(
            create(),
            calls(("l", "look", {"what": "x"}), usage=Usage(input_tokens=5_000, output_tokens=10)),
            calls(
                ("r", "branch_return", {"message": "ok"}),
                usage=Usage(input_tokens=5_110, output_tokens=7),
            ),
            "done",
        ),
        look,
    )
    await chat.say("Go")
    [branch] = await chat.records()
    other = await chat.branches.create("count", "Please count.")
    assert branch.budget_used == other.branch.budget_used + 10 + 100 + 7


async def test_a_branch_out_of_time_ends_with_its_text() -> None:
    never = asyncio.Event()

    async def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        if said == "Go":
            return create(timeout_seconds=10)
        if said.startswith("x:"):
            chat.clock.advance(10)
            await never.wait()
        if in_branch(request):
            return calls(("l", "look", {"what": "x"}), text="Looking at x.")
        return said

    chat = await talk(decide, look)
    end = await chat.say("Go")
    assert end.text.startswith(
        "Looking at x.\n\n(This branch was ended before it returned: timeout"
    )
    [branch] = await chat.records()
    assert (branch.status, branch.result) == ("timeout", "Looking at x.")
    await chat.check()


async def test_an_interrupted_turn_closes_its_branches() -> None:
    """Excludes a shutdown that stops timers and leaves branches active."""
    begun, never = asyncio.Event(), asyncio.Event()

    async def decide(request: SampleRequest) -> Reply:
        if heard(request) == "Go":
            return create()
        begun.set()
        await never.wait()
        raise AssertionError

    chat = await talk(decide)
    await interrupted(chat.say("Go"), begun)
    [branch] = await chat.records()
    assert (branch.status, branch.error) == ("failed", "interrupted")
    await chat.check()


async def test_a_model_that_fails_in_a_branch_fails_the_branch_alone() -> None:
    chat = await talk(
        lambda request: (
            create()
            if heard(request) == "Go"
            else RuntimeError("secret")
            if in_branch(request)
            else heard(request)
        )
    )
    end = await chat.say("Go")
    assert "It has no result" in end.text
    assert "secret" not in end.text
    [branch] = await chat.records()
    assert branch.status == "failed"


async def test_a_branch_uses_only_the_tools_that_were_chosen_for_it() -> None:
    @tool
    async def buy(ctx: BranchContext) -> str:
        raise AssertionError("not in this branch")

    chat = await talk(
        script(
            create(tools=["look"]),
            calls(("b", "buy", {})),
            returns("I could not."),
            create(tools=["sell"], use="d"),
            "ok",
        ),
        look,
        buy,
    )
    await chat.say("Go")
    offered = {tuple(spec.name for spec in each.tools or ()) for each in chat.model.requests}
    assert len(offered) == 1, "the same description of tools, which providers have cached"
    inside, *_ = await chat.of_kind("results")
    assert "There is no tool 'buy'" in (await chat.results(inside))["b"]
    assert "no tool 'sell'" in str(await chat.results((await chat.of_kind("results"))[-1]))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"budget": "much"}, "branch_create was not run: budget"),
        ({"description": ""}, "FOLD016"),
        ({"unknown": 1}, "branch_create was not run: unknown"),
    ],
)
async def test_an_invalid_request_is_refused_in_words_for_the_model(
    given: dict[str, Any], said: str
) -> None:
    chat = await talk(script(create(**given), "ok"))
    await chat.say("Go")
    [result] = (await chat.results((await chat.of_kind("results"))[0])).values()
    assert result.startswith(said)
    assert await chat.records() == []
    assert await chat.of_kind("branch") == []


@pytest.mark.parametrize("limits", [TurnLimits(max_depth=0), TurnLimits(max_branches=0)])
async def test_the_limits_of_the_turn_hold_for_branches(limits: TurnLimits) -> None:
    chat = await talk(script(create(), "ok"), limits=limits)
    await chat.say("Go")
    [result] = (await chat.results((await chat.of_kind("results"))[0])).values()
    assert "Do the task here, without branching" in result
    assert await chat.records() == []


async def test_the_status_is_that_of_the_branch_one_is_in() -> None:
    chat = await talk(
        script(
            calls(("s", "branch_status", {})),
            create(),
            calls(("t", "branch_status", {})),
            returns("ok"),
            "done",
        )
    )
    await chat.say("Go")
    outside, inside, *_ = await chat.of_kind("results")
    assert '"status": "none"' in (await chat.results(outside))["s"]
    assert '"status": "active"' in (await chat.results(inside))["t"]


async def test_the_memory_learns_from_the_work_in_the_branch() -> None:
    """The memory learns from all work in the branch, and from nothing outside or in the branch around."""
    item = InjectedItem(id="m1", title="Counting", content="Count twice.", tokens=5)
    memories = Learning(item)
    decide = script(
        create("outer"),
        create("inner", use="d"),
        calls(("l", "look", {"what": "box"}), text="I will look."),
        calls(("m", "look", {"what": "lid"})),
        returns("It is locked.", extract_memory=True),
        returns("No.", extract_memory=True),
        "done",
    )
    chat = await talk(decide, look, memory=memories)
    await chat.say("Open the box")
    inner, outer = [transcript for _, transcript in memories.queued]
    assert inner.splitlines() == [
        "assistant: I will look.",
        'assistant calls look {"what": "box"}',
        f"result: box: {SEEN}",
        'assistant calls look {"what": "lid"}',
        f"result: lid: {SEEN}",
        'assistant calls branch_return {"message": "It is locked.", "extract_memory": true}',
    ]
    assert "long text" not in outer
    assert "result: It is locked." in outer.splitlines()


async def test_the_samples_of_tools_are_charged_to_the_branch() -> None:
    @tool(requires=["sampling"])
    async def ask(ctx: BranchContext) -> str:
        return (await ctx.sample("question " * 50)).text

    def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        if said.startswith("question"):
            return "answer"
        if said == "Go":
            return create()
        if said == "answer":
            return returns("ok")
        return calls(("a", "ask", {})) if in_branch(request) else said

    chat = await talk(decide, ask)
    await chat.say("Go")
    [branch] = await chat.records()
    assert branch.budget_used > 60


async def test_forks_of_a_branch_do_not_spend_the_same_tokens() -> None:
    open_requests, most = 0, list[int]()

    async def decide(request: SampleRequest) -> Reply:
        nonlocal open_requests
        said = heard(request)
        if said == "Go":
            return create(budget=1_000)
        if "(self-prompt)" in said:
            most.append(request.max_tokens)
            open_requests += 1
            await asyncio.sleep(0)
            assert open_requests == 1, "the first has reserved all that is left"
            open_requests -= 1
            return "word " * 100
        if "branches completed" in said:
            return returns("ok")
        return fork("a", "b", "c", "d", parallel=True) if in_branch(request) else said

    chat = await talk(decide, BranchSelf())
    await chat.say("Go")
    [branch] = await chat.records()
    assert branch.budget_used <= branch.budget_total
    assert len(most) == 4
    assert most == sorted(most, reverse=True)
    assert most[0] - most[-1] >= 3 * 100, "what the others have used is no longer there"
    await chat.check()


async def test_a_branch_is_created_when_open_requests_leave_its_budget() -> None:
    replies: dict[str, Reply] = {
        "Go": create(budget=2_000),
        "(self-prompt): a": create("inner", budget=900),
        "(self-prompt): b": "b is done",
        "inner is done": "a is done",
    }

    def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        if "Please inner" in said:
            return returns("inner is done")
        if "branches completed" in said:
            return returns(said) if in_branch(request) else said
        begun = fork("a", "b", parallel=True, allow_work=True) if in_branch(request) else said
        return replies.get(said, begun)

    chat = await talk(decide, BranchSelf())
    end = await chat.say("Go")
    assert "a is done" in end.text
    assert "b is done" in end.text
    assert [each.status for each in await chat.records()] == ["completed", "completed"]
    await chat.check()


async def test_a_tool_in_a_branch_samples_within_its_budget() -> None:
    @tool(requires=["sampling"])
    async def ask(ctx: BranchContext) -> str:
        return (await ctx.sample("question " * 400)).text

    def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        assert not said.startswith("question"), "its branch does not have that many tokens"
        if said == "Go":
            return create(budget=300)
        if "needs" in said:
            return returns(said) if in_branch(request) else said
        return calls(("a", "ask", {})) if in_branch(request) else said

    chat = await talk(decide, ask)
    end = await chat.say("Go")
    assert "tokens but may use 255" in end.text, "a share is held back for a summary"
    [branch] = await chat.records()
    assert (branch.status, branch.error) == ("completed", None)
    assert branch.budget_used < 300
    await chat.check()


async def test_a_fork_that_fails_is_reported_with_its_text() -> None:
    def decide(request: SampleRequest) -> Any:
        said = heard(request)
        if said == "Go":
            return fork("dig", allow_work=True)
        if said.startswith("x:"):
            return RuntimeError("secret")
        if "branches completed" in said:
            return said
        return calls(("l", "look", {"what": "x"}), text="A coin is there.")

    chat = await talk(decide, look, BranchSelf())
    end = await chat.say("Go")
    assert "Before that: A coin is there." in end.text
    assert "secret" not in end.text
    await chat.check()


async def test_a_fork_that_overflows_its_branch_leaves_tokens_for_its_text() -> None:
    summaries: list[str] = []

    def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        if said == "Go":
            return create(budget=900)
        if "(forced to return)" in said:
            forked = any("(self-prompt)" in each.text for each in request.messages)
            text = f"{'fork' if forked else 'all'}: " + "word " * (request.max_tokens - 5)
            summaries.append(text)
            return text
        if "(self-prompt)" in said or said.startswith("x:"):
            return calls(("l", "look", {"what": "x"}), text="Digging.")
        return fork("dig", allow_work=True) if in_branch(request) else said

    chat = await talk(decide, look, BranchSelf())
    end = await chat.say("Go")
    inner, outer = summaries
    assert inner.startswith("fork: ")
    assert outer.startswith("all: word word")
    assert end.text.startswith(outer.strip())
    [node] = [node for node in await chat.of_kind("results") if "fork" in await chat.results(node)]
    assert "Before that: fork: word" in (await chat.results(node))["fork"]
    [branch] = await chat.records()
    assert branch.status == "completed"
    assert (branch.error or "").startswith("budget exhausted: ")
    assert branch.budget_used <= 900
    await chat.check()
