"""An agent with a provider's model, over a real socket: interruption, and what it does not pay twice."""

import asyncio

import anyio
import pytest

from anabranch.agents import Agent
from anabranch.agents.events import Event, TextReceived
from anabranch.messages import Usage
from anabranch.models import open_model
from anabranch.tree import Node
from tests.agents.memory import MemoryTrees
from tests.models.provider_server import Provider, Say
from tests.models.test_streams import FIRST_WORDS, LONG
from tests.models.test_wire import ANTHROPIC, everywhere


async def nodes_of(agent: Agent, thread_id: str) -> list[Node]:
    return list((await agent.store.tree(thread_id)).nodes)


@everywhere
async def test_an_interrupted_turn_closes_the_stream_and_keeps_what_came(
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
    with anyio.fail_after(10):
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
    with anyio.fail_after(10):
        with pytest.raises(KeyError, match="the listener's"):
            await agent.say(thread.id, "hello")
        await provider.left.wait()
    [_, answer] = await nodes_of(agent, thread.id)
    assert (answer.text, answer.data["stop_reason"]) == (LONG[:4], "error")


async def test_what_half_an_answer_has_cost_is_kept_with_it(provider: Provider) -> None:
    provider.will(Say(LONG, cut=4, end="closed"))
    agent = Agent(MemoryTrees(), open_model(ANTHROPIC))
    thread = await agent.begin()
    with pytest.raises(Exception, match="broke off"):
        await agent.say(thread.id, "hello")
    [_, answer] = await nodes_of(agent, thread.id)
    assert answer.usage == Usage(input_tokens=11, output_tokens=1)
    assert answer.data["model"] == "claude-test-1"
