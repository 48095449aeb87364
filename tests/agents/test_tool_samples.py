"""Samples of an agent's tools belong to its turn: counted, limited, and stored with their usage."""

import asyncio
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from anabranch import BranchContext, Limits, ToolError, tool
from anabranch._asking import Absent
from anabranch.agents import Agent, TurnLimitError, TurnLimits, turn_of
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, Usage
from anabranch.testing import MockModel, calls
from tests.agents.harness import Answering, Setting, fork, heard, results_in, set_up
from tests.agents.memory import MemoryTrees
from tests.patience import PATIENCE

FREE = Usage(output_tokens=1)


class Go(BaseModel):
    ok: bool


@tool
async def ponder(ctx: BranchContext, times: int, most: int = 1_000) -> str:
    """Sample several times at the same time, and return the number of replies."""

    async def once() -> bool:
        try:
            await ctx.sample(messages=[{"role": "user", "content": "hm"}], max_tokens=most)
        except ToolError:
            return False
        return True

    answered = await ctx.gather(*(once() for _ in range(times)))
    return f"{sum(answered)} of {times}"


@tool
async def insist(ctx: BranchContext) -> str:
    """Sample, ask the user, and sample again."""
    await ctx.sample("hm")
    await ctx.elicit(Go, "Go on?")
    return (await ctx.sample("hm")).text


class Pondering:
    """A model that calls a tool, and replies to samples with a usage; it counts simultaneous samples."""

    def __init__(self, usage: Usage | None, *uses: tuple[str, str, dict[str, Any]]) -> None:
        self.usage = usage
        self.uses = uses
        self.now = 0
        self.most = 0
        self.granted: list[int] = []

    async def __call__(self, request: SampleRequest) -> SampleReply | str:
        if heard(request) == "hm":
            self.granted.append(request.max_tokens)
            self.now += 1
            self.most = max(self.most, self.now)
            for _ in range(5):
                await asyncio.sleep(0)
            self.now -= 1
            return calls(text="hm " * 100, usage=self.usage)
        if results_in(request.messages[-1].content):
            return calls(text="done", usage=FREE)
        return calls(*self.uses, usage=FREE)


def price(_: str, used: Usage) -> float:
    return used.total_tokens / 1_000


async def results_of(here: Setting) -> dict[str, str]:
    [node] = await here.of_kind("results")
    return await here.results(node)


async def test_samples_of_a_tool_run_within_the_turns_concurrency() -> None:
    model = Pondering(Usage(input_tokens=10, output_tokens=1_200), ("p", "ponder", {"times": 20}))
    limits = TurnLimits(max_tokens=3_000, max_concurrent_requests=2)
    here = await set_up(model, tools=[ponder], limits=limits)
    with anyio.fail_after(PATIENCE), pytest.raises(TurnLimitError, match="of 3000 tokens"):
        await here.say("go")
    await here.check()
    assert model.most <= 2
    assert await results_of(here) == {"p": "3 of 20"}
    assert model.granted[:2] == [1_000, 1_000]
    assert model.granted[2] < 600, "what was left; it used more, as models may"
    [node] = await here.of_kind("results")
    assert node.usage == Usage(input_tokens=30, output_tokens=3_600)


async def test_a_request_waits_for_unused_reservations_of_others() -> None:
    """A request is neither refused nor shortened because of tokens that will be released."""
    model = Pondering(Usage(output_tokens=100), ("p", "ponder", {"times": 20}))
    here = await set_up(model, tools=[ponder], limits=TurnLimits(max_tokens=4_000))
    with anyio.fail_after(PATIENCE):
        end = await here.say("go")
    assert end.text == "done"
    assert await results_of(here) == {"p": "20 of 20"}
    assert set(model.granted) == {1_000}
    assert model.most < 4


async def test_usage_and_cost_are_stored_where_the_tools_have_returned() -> None:
    usage = Usage(input_tokens=200, output_tokens=300)
    once, twice = ("p", "ponder", {"times": 1}), ("q", "ponder", {"times": 2})
    here = await set_up(
        Pondering(usage, once, twice), tools=[ponder], limits=TurnLimits(price=price)
    )
    await here.say("go")
    [node] = await here.of_kind("results")
    assert node.usage == Usage(input_tokens=600, output_tokens=900)
    assert node.data["cost"] == 1.5
    samples: Any = node.data["samples"]
    assert {use: (each["requests"], each["cost"]) for use, each in samples.items()} == {
        "p": (1, 0.5),
        "q": (2, 1.0),
    }
    assert samples["p"]["usage"] == usage.model_dump()


async def test_usage_before_a_question_is_stored_with_the_question() -> None:
    """The turn may end at the question, and its usage must not be lost."""
    usage = Usage(output_tokens=7)
    answer = Answering(lambda _: ElicitReply(action="accept", content={"ok": True}))
    here = await set_up(Pondering(usage, ("i", "insist", {})), tools=[insist], user=answer)
    await here.say("go")
    tree = await here.check()
    used = {node.kind: node.usage for node in tree.nodes}
    assert (used["question"], used["answer"], used["results"]) == (usage, None, usage)


async def test_without_a_usage_the_estimate_counts() -> None:
    model = Pondering(None, *((str(n), "ponder", {"times": 1}) for n in range(12)))
    here = await set_up(model, tools=[ponder], limits=TurnLimits(max_tokens=2_000))
    with pytest.raises(TurnLimitError, match=r"used 1\d{3} of 2000 tokens"):
        await here.say("go")
    [node] = await here.of_kind("results")
    assert (node.usage, len(model.granted)) == (None, 12)


async def test_a_cost_is_limited_for_requests_at_the_same_time() -> None:
    usage = Usage(input_tokens=500, output_tokens=500)
    sent: list[str] = []

    def decide(request: SampleRequest) -> SampleReply:
        sent.append(heard(request))
        if heard(request) == "fork":
            return fork(*"abcdefghij").model_copy(update={"usage": usage})
        return calls(text="done", usage=usage)

    here = await set_up(decide, limits=TurnLimits(max_cost=4.0, price=price))
    with pytest.raises(TurnLimitError, match="4 of 4 cost"):
        await here.say("fork")
    assert len(sent) == 4


async def test_a_failed_request_uses_no_tokens() -> None:
    failing = True

    def decide(request: SampleRequest) -> SampleReply | Exception:
        return RuntimeError("down") if failing else calls(text="done", usage=FREE)

    here = await set_up(decide, limits=TurnLimits(max_tokens=9_000), user=Absent())
    start = await here.agent.put(here.thread_id, [(None, "hello")])
    path = await here.agent.store.path(start[0].id)
    turn = await turn_of(here.agent, start[0])
    with pytest.raises(RuntimeError):
        await turn.run(path)
    account = turn.timeline.meter.account
    assert (account.tokens, account.reserved) == (0, 0)
    failing = False
    await turn.run(path)
    assert (account.tokens, account.reserved) == (1, 0)


async def leaf(ctx: BranchContext) -> str:
    return (await ctx.sample("hm", max_tokens=50)).text


@tool
async def dive(ctx: BranchContext) -> str:
    return await ctx.branch(leaf)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(max_depth=0), "A branch at depth 1 would exceed max_depth=0."),
        (Limits(max_tokens=1), "Branch 'dive' needs 3 tokens but may use 1."),
        (Limits(max_tokens=500, max_depth=1), "hm hm"),
    ],
)
async def test_limits_can_be_set_for_each_call_of_a_tool(limits: Limits, said: str) -> None:
    model = MockModel(Pondering(FREE, ("d", "dive", {})))
    agent = Agent(MemoryTrees(), model, tools=[dive], tool_limits=limits)
    end = await agent.say((await agent.begin()).id, "go")
    [result] = (await agent.store.path(end.id)).results.values()
    assert said in "".join(block.text for block in result.content if block.type == "text")
