"""Reasoning returns only to its provider, with the results of the tools that the reply calls."""

import json
from itertools import pairwise
from typing import Any

import pytest
from pydantic_ai import messages as ai

from anabranch import BranchContext, assistant, tool, user
from anabranch.agents import Agent
from anabranch.messages import Message, SampleRequest, TextBlock, ToolResultBlock, ToolUseBlock
from anabranch.models import StreamingSampler, open_model
from anabranch.models._pydantic_ai import ProviderModel
from anabranch.tree import messages_to_json, project, to_markdown, tree_to_json
from tests.agents.memory import MemoryTrees
from tests.models.harness import ANTHROPIC, LOOK, OLLAMA, replying
from tests.models.provider_formats.answers import signed
from tests.models.provider_server import Call, Provider, Refuse, Say

OPENAI = "openai:gpt-5"
WHY = "The sky may be grey."
THINKS = Say("I look.", (Call("c1", "look", {"at": "sky"}),), reasoning=WHY)


@tool
async def look(_: BranchContext, at: str) -> str:
    return f"rain over the {at}"


def reasoned(body: Any, model: str) -> list[tuple[str, Any]]:
    """Return the reasoning in a request, each with the kind of the following block."""
    if model == OPENAI:
        items = [each for each in body["input"] if "type" in each]
        return [
            (each["encrypted_content"], after["type"])
            for each, after in pairwise(items)
            if each["type"] == "reasoning"
        ]
    if model == OLLAMA:
        told = [each for each in body["messages"] if "reasoning" in each]
        return [(signed(each["reasoning"]), "tool_calls" in each and "message") for each in told]
    return [
        (each["signature"], after["type"])
        for message in body["messages"]
        if isinstance(message["content"], list)
        for each, after in pairwise(message["content"])
        if each["type"] == "thinking"
    ]


@pytest.mark.parametrize(
    ("model", "next_kind"), [(ANTHROPIC, "text"), (OPENAI, "message"), (OLLAMA, "message")]
)
async def test_reasoning_returns_with_the_results_of_its_turn_and_is_never_shown(
    provider: Provider, model: str, next_kind: str
) -> None:
    provider.will(THINKS, THINKS, Say("It rains."), Say("Take a coat."))
    store = MemoryTrees()
    agent = Agent(store, open_model(model), tools=[look])
    thread = await agent.begin()
    assert (await agent.say(thread.id, "Is it raining?")).text == "It rains."
    [_, second, third] = provider.bodies
    assert reasoned(second, model) == [(signed(WHY), next_kind)]
    assert reasoned(third, model) == [(signed(WHY), next_kind)] * 2
    await agent.say(thread.id, "What now?")
    assert WHY not in json.dumps(provider.bodies[-1])
    tree = await store.tree(thread.id)
    assert [node.text for node in tree.nodes if node.kind == "assistant"][:2] == ["I look."] * 2
    assert WHY not in json.dumps(tree_to_json(tree)) + to_markdown(tree)
    path = await store.path(tree.nodes[2].id)
    assert WHY in json.dumps(messages_to_json(project(path.nodes, path.results)))


async def answered(model: StreamingSampler, provider: Provider) -> tuple[Message, ...]:
    """Return a conversation in which a reply of `model` has got its results, and the next reply is due."""
    provider.will(THINKS)
    asked = user("Is it raining?")
    reply = await model.sample(SampleRequest(messages=(asked,), max_tokens=9, tools=(LOOK,)))
    result = ToolResultBlock(tool_use_id="c1", content=(TextBlock(text="rain"),))
    return (asked, assistant(reply.content), user([result]))


@pytest.mark.parametrize(("model", "other"), [(ANTHROPIC, OPENAI), (OPENAI, ANTHROPIC)])
async def test_reasoning_never_goes_to_another_provider(
    provider: Provider, model: str, other: str
) -> None:
    messages = await answered(open_model(model), provider)
    provider.will(Say("It rains."))
    await open_model(other).sample(SampleRequest(messages=messages, max_tokens=9))
    assert WHY not in json.dumps(provider.bodies[-1])
    assert not any(WHY in json.dumps(message.wire()) for message in messages)


@pytest.mark.parametrize("model", [ANTHROPIC, OPENAI])
async def test_a_turn_continues_without_reasoning_that_its_provider_refuses(
    provider: Provider, model: str
) -> None:
    """Another key or another model of the provider cannot verify the signature."""
    refused = Refuse(400, "The encrypted content could not be verified.")
    provider.will(THINKS, refused, THINKS, Say("It rains."))
    agent = Agent(MemoryTrees(), open_model(model), tools=[look])
    thread = await agent.begin()
    assert (await agent.say(thread.id, "Is it raining?")).text == "It rains."
    taken = [len(reasoned(body, model)) for body in provider.bodies]
    assert taken == [0, 1, 0, 1]


async def test_the_signature_of_a_call_returns_with_the_call() -> None:
    """Gemini signs the call, and refuses a result without the signature."""
    details = {"thought_signature": "c2lnbmVk"}
    call = ai.ToolCallPart(
        "look", {"at": "sky"}, "c1", provider_name="function", provider_details=details
    )
    model, asked = replying(ai.ModelResponse(parts=[ai.TextPart("\n\n"), call]))
    sampler = ProviderModel(model)
    first = user("Is it raining?")
    reply = await sampler.sample(SampleRequest(messages=(first,), max_tokens=9, tools=(LOOK,)))
    [use] = [block for block in reply.content if isinstance(block, ToolUseBlock)]
    messages = (first, assistant([use]), user([ToolResultBlock(tool_use_id="c1")]))
    await sampler.sample(SampleRequest(messages=messages, max_tokens=9, tools=(LOOK,)))
    [sent] = asked[1][0][1].parts
    assert (sent.provider_name, sent.provider_details) == ("function", details)
