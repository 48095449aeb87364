"""Conversations that a program leads: where each turn is added, and the results."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import anyio
import pytest

from anabranch import ToolError, agents
from anabranch.agents import Agent, BranchOutcome
from anabranch.messages import SampleRequest
from anabranch.models import ModelError
from anabranch.tree import Node, Ref
from tests.agents.harness import Setting, heard, set_up
from tests.patience import PATIENCE


class Flow(Protocol):
    async def __call__(
        self, agent: Agent, thread_id: str, prompts: Sequence[str], /
    ) -> list[BranchOutcome]: ...


def echo(request: SampleRequest) -> str | Exception:
    text = heard(request)
    return ModelError("Out of ink. Buy some.") if text == "fail" else f"re {text}"


async def lines(here: Setting, ends: Sequence[Node]) -> list[list[str]]:
    """Return the texts on the path to each node."""
    paths = [await here.agent.store.path(end.id) for end in ends]
    return [[node.text for node in path.nodes] for path in paths]


@pytest.mark.parametrize("flow", [agents.branch, agents.parallel])
async def test_branches_begin_at_one_node_and_leave_the_head_there(flow: object) -> None:
    here = await set_up(echo)
    start = await here.say("hello")
    run = agents.parallel if flow is agents.parallel else agents.branch
    branches = await run(here.agent, here.thread_id, ["a", "fail", "c"])
    assert [each.text for each in branches] == ["re a", "", "re c"]
    assert [each.error for each in branches] == [None, "Out of ink. Buy some.", None]
    said = await lines(here, [each.end for each in branches])
    assert said[0] == ["hello", "re hello", "a", "re a"]
    assert said[1][-1] == "(this branch has failed): Out of ink. Buy some."
    children = await here.agent.store.children(start.id)
    assert [node.text for node in children] == ["a", "fail", "c"]
    assert await here.agent.head(here.thread_id) == start.id
    await here.check()


async def test_only_parallel_branches_run_at_the_same_time() -> None:
    running, most = 0, 0

    async def decide(request: SampleRequest) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        return "done"

    for flow, at_once in [(agents.branch, 1), (agents.parallel, 4)]:
        most = 0
        here = await set_up(decide)
        with anyio.fail_after(PATIENCE):
            await flow(here.agent, here.thread_id, list("abcd"))
        assert most == at_once


async def test_no_prompts_open_no_branch_and_a_blank_prompt_is_refused() -> None:
    here = await set_up(echo)
    assert await agents.parallel(here.agent, here.thread_id, []) == []
    with pytest.raises(ToolError, match="blank"):
        await agents.parallel(here.agent, here.thread_id, ["a", " "])
    assert (await here.tree()).nodes == ()


async def test_nodes_are_combined_without_touching_the_thread() -> None:
    def decide(request: SampleRequest) -> str | Exception:
        return "Option 2: because" if "Judge" in heard(request) else echo(request)

    here = await set_up(decide)
    ends = [each.end for each in await agents.parallel(here.agent, here.thread_id, ["a", "b"])]
    before = await here.tree()
    made = await agents.combine(here.agent, ends, "llm_judge")
    assert (made.text, made.chosen) == ("re b", "b1")
    assert "in reply to 'a'" in heard(here.model.requests[-1])
    assert await here.tree() == before
    with pytest.raises(ToolError, match="nothing to combine"):
        await agents.combine(here.agent, [])
    elsewhere = await here.agent.say((await here.agent.begin()).id, "c")
    with pytest.raises(ToolError, match="no node"):
        await agents.combine(here.agent, [ends[0], elsewhere])


async def test_combined_texts_go_by_the_names_of_their_branches() -> None:
    here = await set_up(echo)
    ends = [each.end for each in await agents.parallel(here.agent, here.thread_id, ["a", "b", "c"])]
    made = await agents.combine(here.agent, ends)
    assert made.text == "1. main: re a\n\n2. b1: re b\n\n3. b2: re c"


async def test_a_broadcast_reaches_every_leaf_and_each_answer_hangs_there() -> None:
    here = await set_up(echo)
    branches = await agents.parallel(here.agent, here.thread_id, ["a", "b", "c"])
    await here.agent.store.set_ref(here.thread_id, Ref("not this", branches[1].end.id))
    said = await agents.broadcast_to_leaves(
        here.agent, here.thread_id, "so?", skip=["not this", "head"]
    )
    assert await lines(here, [each.end for each in said]) == [
        ["a", "re a", "so?", "re so?"],
        ["c", "re c", "so?", "re so?"],
    ]
    assert await here.agent.store.children(branches[1].end.id) == []
    await here.check()


@pytest.mark.parametrize("run", [agents.parallel, agents.branch])
async def test_one_text_is_one_prompt(run: Flow) -> None:
    here = await set_up(echo)
    await here.say("hello")
    [branch] = await run(here.agent, here.thread_id, "One way")
    assert branch.text == "re One way"
