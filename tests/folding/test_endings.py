"""Branches that end early: the model is warned, the work is kept, and the memory learns from it."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, Capabilities, tool
from anabranch.agents import BranchSelf
from anabranch.errors import StoreError
from anabranch.folding import (
    Branch,
    BranchNotActiveError,
    BranchService,
    FoldingSettings,
    folding_tools,
)
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, ToolUseBlock, Usage, text_of
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock, MockClient, calls, run_tool
from anabranch.tree import NO_RESULT
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
from tests.folding.hosts import TASK
from tests.folding.passing_on import PassingOn

FORCED = "(forced to return)"


# -- the warning -----------------------------------------------------------------------------


async def test_the_next_result_says_once_that_most_of_the_budget_is_used() -> None:
    """Excludes a warning that only users and records see, and one that every later result repeats."""
    results: list[str] = []

    def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        if said == "Go":
            return create(budget=2_000)
        if not in_branch(request):
            return said
        results.append(said)
        looks = sum(each.startswith("x:") for each in results)
        if looks == 1:
            return calls(("l", "look", {"what": "x"}), text="word " * 1_650)
        return returns("Enough.") if looks == 3 else calls(("l", "look", {"what": "x"}))

    chat = await talk(decide, look, summary_budget_ratio=0)
    assert (await chat.say("Go")).text == "Enough."
    _, first, second, third = results
    assert "tokens" not in first
    [*_, line] = second.splitlines()
    assert line.startswith("(")
    assert "of 2000 tokens are used: finish, and call branch_return." in line
    assert second.startswith(f"x: {SEEN}")
    assert "tokens" not in third
    await chat.check()


LINE = "\n(Of this branch's budget, "


def nearly_used_up(*uses: str, heard_in_branch: list[str]) -> Any:
    """A model whose branch has used most of its budget when it calls these tools together."""
    most = Usage(input_tokens=1_000, output_tokens=1_700)

    def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        if said == "Go":
            return create(budget=2_000)
        if not in_branch(request):
            return said
        heard_in_branch.append(said)
        if len(heard_in_branch) > 1:
            return returns("Enough.")
        called = [ToolUseBlock(id=name, name=name, input={}) for name in uses]
        return SampleReply(content=tuple(called), model="m", usage=most)

    return decide


@tool
async def pay(ctx: BranchContext) -> str:
    return "paid"


@tool
async def post(ctx: BranchContext) -> str:
    return "posted"


@tool
async def ask(ctx: BranchContext) -> str:
    return (await ctx.elicit(Where, "Where?")).action


class Where(BaseModel):
    room: str


async def test_effects_of_a_tool_are_stored_although_the_budget_cannot_be_read() -> None:
    """Excludes a result that is lost with its budget line; the next result has the line."""
    results: list[str] = []

    class Failing(PassingOn):
        fails = False

        async def branch(self, branch_id: str) -> Branch | None:
            if self.fails:
                self.fails = False
                raise StoreError("the database of branches does not answer")
            return await self.store.branch(branch_id)

    store: Any = Failing()

    @tool
    async def pay(ctx: BranchContext) -> str:
        store.fails = True
        return "paid"

    model = nearly_used_up("pay", "post", heard_in_branch=results)
    chat = await talk(model, pay, post, store=store, summary_budget_ratio=0)
    assert (await chat.say("Go")).text == "Enough."
    assert results[1].startswith(f"paid | posted{LINE}")


async def test_one_of_several_simultaneous_results_has_the_budget_line() -> None:
    results: list[str] = []

    model = nearly_used_up("pay", "post", heard_in_branch=results)
    chat = await talk(model, pay, post, summary_budget_ratio=0)
    await chat.say("Go")
    assert results[1].count(LINE) == 1


async def test_a_tool_that_returns_after_its_answer_does_not_repeat_the_budget_line() -> None:
    """Another process may continue then, and reads in the tree that one result has the line."""
    results: list[str] = []
    model = nearly_used_up("pay", "ask", heard_in_branch=results)
    chat = await talk(model, pay, ask, capabilities=Capabilities(), summary_budget_ratio=0)
    await chat.say("Go")
    [question] = await chat.of_kind("question")
    where = ElicitReply(action="accept", content={"room": "two"})
    assert (await chat.agent.answer(question.id, where)).text == "Enough."
    assert results[1].startswith(f"paid{LINE}")
    assert results[1].endswith(" | accept")


async def test_an_interrupted_tool_reports_its_interruption_without_the_budget() -> None:
    working = asyncio.Event()

    @tool
    async def pay(ctx: BranchContext) -> str:
        working.set()
        await asyncio.Event().wait()
        raise AssertionError("it is interrupted")

    chat = await talk(nearly_used_up("pay", heard_in_branch=[]), pay)
    await interrupted(chat.say("Go"), working)
    results = (await chat.tree()).results.values()
    assert [text_of(each.content) for each in results if each.tool_use_id == "pay"] == [NO_RESULT]


async def test_the_budget_is_reported_when_a_tool_returns_the_sentence_of_an_interruption() -> None:
    """Excludes a tool whose text turns the warning off."""
    results: list[str] = []

    @tool
    async def pay(ctx: BranchContext) -> str:
        return NO_RESULT

    chat = await talk(nearly_used_up("pay", heard_in_branch=results), pay, summary_budget_ratio=0)
    assert (await chat.say("Go")).text == "Enough."
    assert results[1].startswith(f"{NO_RESULT}{LINE}")


# -- the forced request ----------------------------------------------------------------------


def hungry(last: Reply) -> Any:
    """A model that looks at things until it is forced to return, and then replies ``last``."""

    def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        if said == "Go":
            return create(budget=400)
        if said.startswith(FORCED):
            return last
        return calls(("l", "look", {"what": "more"})) if in_branch(request) else said

    return decide


async def test_the_forced_request_offers_only_branch_return() -> None:
    chat = await talk(hungry(returns("Two of three.")), look)
    assert (await chat.say("Go")).text.startswith("Two of three.")
    [*others, forced, _] = chat.model.requests
    assert [each.name for each in forced.tools or ()] == ["branch_return"]
    assert forced.tool_choice == "required"
    assert all(len(each.tools or ()) > 1 and each.tool_choice is None for each in others)


async def test_a_forced_branch_of_branch_self_is_offered_no_tool() -> None:
    """A branch of ``branch_self`` has no ``branch_return``: its text is its answer."""

    def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        if said == "Go":
            return create(budget=900)
        if FORCED in said:
            return "What I have."
        if "(self-prompt)" in said or said.startswith("x:"):
            return calls(("l", "look", {"what": "x"}))
        if "branches completed" in said:
            return returns("ok")
        return fork("dig", allow_work=True) if in_branch(request) else said

    chat = await talk(decide, look, BranchSelf())
    await chat.say("Go")
    forced = next(each for each in chat.model.requests if FORCED in heard(each))
    assert forced.tool_choice == "none"
    await chat.check()


@pytest.mark.parametrize("text", ["", "I need one look more."])
async def test_finished_work_is_kept_when_the_forced_model_calls_another_tool(text: str) -> None:
    """Excludes a branch that returns nothing because its last reply was a call."""
    again = calls(("m", "look", {"what": "again"}), text=text)
    chat = await talk(hungry(again), look)
    end = await chat.say("Go")
    assert "It has no result" not in end.text
    assert (text or f"more: {SEEN}".strip()) in end.text
    [branch] = await chat.records()
    assert branch.status == "completed"
    assert (branch.error or "").startswith("budget exhausted: ")
    await chat.check()


# -- what is learned -------------------------------------------------------------------------


async def test_a_forced_return_can_ask_the_memory_to_learn() -> None:
    memories = Learning()
    chat = await talk(hungry(returns("Two.", extract_memory=True)), look, memory=memories)
    await chat.say("Go")
    [(branch, transcript)] = memories.queued
    assert (branch.status, branch.result) == ("completed", "Two.")
    assert branch.error is not None
    assert 'assistant calls look {"what": "more"}' in transcript


async def failing(request: SampleRequest) -> Reply:
    said = heard(request)
    if said == "Go":
        return create(extract_memory=True)
    if said.startswith("x:"):
        raise ConnectionError
    return calls(("l", "look", {"what": "x"})) if in_branch(request) else said


async def test_the_memory_learns_from_a_failed_branch() -> None:
    memories = Learning()
    chat = await talk(failing, look, memory=memories)
    await chat.say("Go")
    [(branch, transcript)] = memories.queued
    assert branch.status == "failed"
    assert f"result: x: {SEEN}" in transcript


async def test_the_memory_learns_from_a_branch_out_of_time() -> None:
    memories, never = Learning(), asyncio.Event()

    async def decide(request: SampleRequest) -> Reply:
        said = heard(request)
        if said == "Go":
            return create(timeout_seconds=10, extract_memory=True)
        if said.startswith("x:"):
            chat.clock.advance(10)
            await never.wait()
        return calls(("l", "look", {"what": "x"})) if in_branch(request) else said

    chat = await talk(decide, look, memory=memories)
    await chat.say("Go")
    [(branch, transcript)] = memories.queued
    assert branch.status == "timeout"
    assert f"result: x: {SEEN}" in transcript


@pytest.mark.parametrize("how", ["charge", "force", "expire", "time_out", "parent", "return"])
async def test_the_memory_learns_once_from_every_kind_of_end(how: str) -> None:
    memories, clock = Learning(), ManualClock()
    service = BranchService(open_branch_store("memory:"), memory=memories, clock=clock)
    outer = (await service.create(**TASK, budget=1_000)).branch
    made = await service.create(
        **TASK, budget=300, timeout_seconds=9, extract_memory=True, session_id=outer.session_id
    )
    name = made.branch.id
    if how == "charge":
        await service.charge(400, branch_id=name, partial="half")
    elif how == "force":
        await service.force(name, "no longer needed", "half", transcript="all of it")
    elif how == "parent":
        await service.complete("done", branch_id=outer.id)
    elif how == "return":
        assert (await service.complete("done", branch_id=name)).memory_queued
    else:
        clock.advance(10)
        await (service.expire() if how == "expire" else service.time_out(name))
    await service.expire()
    [(branch, transcript)] = memories.queued
    assert branch.id == name
    assert not branch.is_open
    if how == "force":
        assert transcript == "all of it"
    with pytest.raises(BranchNotActiveError):
        await service.complete("late", branch_id=name)


async def test_a_host_asks_for_learning_when_it_creates_a_branch() -> None:
    """The host also receives the budget warning in the result of ``branch_report``, as before."""
    memories, clock = Learning(), ManualClock()
    service = BranchService(
        open_branch_store("memory:"),
        memory=memories,
        clock=clock,
        settings=FoldingSettings(max_depth=1),
    )
    branch_create = folding_tools(service)[0]
    await run_tool(branch_create, {**TASK, "extract_memory": True}, MockClient())
    await run_tool(branch_create, {**TASK}, MockClient())
    clock.advance(1_000)
    await service.expire()
    [(branch, _)] = memories.queued
    assert branch.status == "timeout"
