"""An agent with a provider's model, over a real socket: interruption, usage and caching."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from anabranch import agents
from anabranch.agents import Agent, BranchSelf, Event, TextReceived, TurnLimits
from anabranch.messages import Usage
from anabranch.models import open_model
from anabranch.tree import Node
from tests.agents.memory import MemoryTrees
from tests.models.harness import ANTHROPIC, FIRST_WORDS, LONG, everywhere
from tests.models.provider_server import Call, Provider, Say
from tests.patience import PATIENCE


async def nodes_of(agent: Agent, thread_id: str) -> list[Node]:
    return list((await agent.store.tree(thread_id)).nodes)


@everywhere
async def test_an_interrupted_turn_closes_the_stream_and_stores_the_received_part(
    provider: Provider, model: str
) -> None:
    provider.will(Say(LONG, cut=FIRST_WORDS[model], end="silent"))
    heard = asyncio.Event()

    async def listen(event: Event) -> None:
        if isinstance(event, TextReceived):
            heard.set()

    agent = Agent(MemoryTrees(), open_model(model), listener=listen)
    thread = await agent.begin()
    turn = asyncio.create_task(agent.say(thread.id, "hello"))
    with anyio.fail_after(PATIENCE):
        await heard.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        await provider.left.wait()
    [_, answer] = await nodes_of(agent, thread.id)
    assert (answer.text, answer.data["stop_reason"]) == (LONG[:4], "interrupted")


async def test_a_listener_that_fails_closes_the_stream(provider: Provider) -> None:
    provider.will(Say(LONG, cut=FIRST_WORDS[ANTHROPIC], end="silent"))

    async def listen(event: Event) -> None:
        if isinstance(event, TextReceived):
            raise KeyError("the listener's")

    agent = Agent(MemoryTrees(), open_model(ANTHROPIC), listener=listen)
    thread = await agent.begin()
    with anyio.fail_after(PATIENCE):
        with pytest.raises(KeyError, match="the listener's"):
            await agent.say(thread.id, "hello")
        await provider.left.wait()
    [_, answer] = await nodes_of(agent, thread.id)
    assert (answer.text, answer.data["stop_reason"]) == (LONG[:4], "error")


async def test_the_usage_of_a_partial_answer_is_stored_with_it(provider: Provider) -> None:
    provider.will(Say(LONG, cut=4, end="closed"))
    agent = Agent(MemoryTrees(), open_model(ANTHROPIC))
    thread = await agent.begin()
    with pytest.raises(Exception, match="broke off"):
        await agent.say(thread.id, "hello")
    [_, answer] = await nodes_of(agent, thread.id)
    assert answer.usage == Usage(input_tokens=11, output_tokens=1)
    assert answer.data["model"] == "claude-test-1"


async def test_the_cost_of_a_reply_that_broke_off_before_its_first_word_is_counted(
    provider: Provider,
) -> None:
    """The agent stores no text of the reply, but the provider charges for it."""
    provider.will(Say(LONG, cut=1, end="closed"), Say("Never asked for."))
    agent = Agent(MemoryTrees(), open_model(ANTHROPIC), limits=TurnLimits(max_tokens=12))
    thread = await agent.begin()
    first, second = await agents.branch(agent, thread.id, ["one", "two"])
    assert "broke off" in str(first.error)
    assert "12 of 12 tokens" in str(second.error)
    assert len(provider.bodies) == 1
    assert [node.usage for node in await nodes_of(agent, thread.id)] == [None] * 4


def conversation(body: Mapping[str, Any]) -> list[str]:
    """Return the messages of a request in their wire form."""
    return [json.dumps(message) for message in body.get("messages", body.get("input"))]


def beside(body: Mapping[str, Any]) -> str:
    """Return the rest of a request in its wire form: tools, system prompt, settings."""
    rest = {key: value for key, value in body.items() if key not in {"messages", "input"}}
    return json.dumps(rest)


@everywhere
async def test_a_fork_sends_exactly_the_earlier_bytes_again(provider: Provider, model: str) -> None:
    """A provider's cache holds the longest known prefix of a request."""
    fork = Call("c1", "branch_self", {"prompts": ["Think of rain.", "Think of wind."]})
    provider.will(Say("Hi."), Say("Let me think.", (fork,)), *[Say("Well.")] * 3)
    agent = Agent(MemoryTrees(), open_model(model, cache=True), tools=[BranchSelf()])
    thread = await agent.begin(system_prompt="Be brief.")
    await agent.say(thread.id, "Hello.")
    await agent.say(thread.id, "Shall I go out?")
    _, caller, *branches, last = provider.bodies
    assert len(branches) == 2
    before = conversation(caller)
    shared = conversation(branches[0])[:-1]
    for body in (*branches, last):
        assert beside(body) == beside(caller)
        assert conversation(body)[: len(before)] == before
        assert len(conversation(body)) > len(before)
    assert len(shared) > len(before)
    assert conversation(branches[1])[:-1] == shared
    if model == ANTHROPIC:
        assert caller["cache_control"]["type"] == "ephemeral"
