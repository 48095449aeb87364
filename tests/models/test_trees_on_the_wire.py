"""Law 6 over a real socket: providers accept the adapters' request for any path of the tree.

The server refuses a request that breaks the published rules with a 400, so a reply is the proof.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given

from anabranch.messages import SampleRequest, TextBlock
from anabranch.models import StreamingSampler, open_model
from anabranch.tree import Kind, Node, Result, project
from tests.laws.trees import Thicket, thickets
from tests.models.harness import LOOK, everywhere
from tests.models.provider_server import Call, Provider, Say, provider_server
from tests.randomised import examples


@everywhere
@examples(12, HealthCheck.function_scoped_fixture)
@given(thicket=thickets(most=7))
async def test_providers_accept_every_path(
    model: str, thicket: Thicket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law 6, over a real socket, for any tree."""
    async with provider_server() as provider:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        monkeypatch.setenv("OPENAI_API_KEY", "secret")
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        monkeypatch.setenv("OLLAMA_BASE_URL", f"{provider.url}/v1")
        opened = open_model(model, retries=0)
        for node in thicket.nodes:
            provider.will(Say("taken"))
            messages = project(thicket.path(node), thicket.results)
            request = SampleRequest(messages=messages, max_tokens=9, system_prompt="Be kind.")
            assert (await opened.sample(request)).text == "taken"


class Thread:
    """A conversation as an agent leads it: nodes, their results, and one model."""

    def __init__(self, model: StreamingSampler) -> None:
        self.model = model
        self.nodes: dict[str, Node] = {}
        self.results: dict[tuple[str, str], Result] = {}

    def add(self, kind: Kind, content: Sequence[Any], parent: Node | None) -> Node:
        number = len(self.nodes)
        before = parent.id if parent else None
        node = Node(f"n{number}", "t", before, kind, tuple(content), float(number))
        self.nodes[node.id] = node
        return node

    def say(self, text: str, parent: Node | None, kind: Kind = "user") -> Node:
        return self.add(kind, [TextBlock(text=text)], parent)

    def give(self, node: Node, results: Mapping[str, str]) -> None:
        for use_id, text in results.items():
            self.results[node.id, use_id] = Result(node.id, use_id, (TextBlock(text=text),))

    async def answer(self, node: Node) -> Node:
        path = [node]
        while path[0].parent_id is not None:
            path.insert(0, self.nodes[path[0].parent_id])
        request = SampleRequest(
            messages=project(path, self.results),
            max_tokens=99,
            system_prompt="Be brief.",
            tools=(LOOK, LOOK.model_copy(update={"name": "branch_self"})),
        )
        async with self.model.stream(request) as stream:
            async for _ in stream:
                pass
        return self.add("assistant", stream.reply.content, node)


def sent(provider: Provider) -> list[str]:
    """Return the messages of the last request in their wire form."""
    body = provider.bodies[-1]
    return [json.dumps(message) for message in body.get("messages", body.get("input"))]


@everywhere
async def test_a_conversation_with_parallel_calls_a_fork_and_a_way_back(
    provider: Provider, model: str
) -> None:
    """Two concurrent tools, the model's branches below one of them, and the main conversation again."""
    thread = Thread(open_model(model))
    calls = (Call("c1", "look", {"at": "sky"}), Call("c2", "branch_self", {}))
    provider.will(Say("Let me see.", calls), Say("It is wet."), Say("It is cold."), Say("Stay in."))
    caller = await thread.answer(thread.say("Shall I go out?", None))
    asked = sent(provider)

    thread.give(caller, {"c1": "rain", "c2": "(branching)"})
    branches = [
        await thread.answer(thread.say(prompt, caller, "branch"))
        for prompt in ("Think of rain.", "Think of wind.")
    ]
    assert [branch.text for branch in branches] == ["It is wet.", "It is cold."]
    assert sent(provider)[: len(asked)] == asked
    assert "(branching)" in sent(provider)[-1] + sent(provider)[-2]
    assert "Think of wind." in sent(provider)[-1]
    assert "Think of rain." not in "".join(sent(provider))

    thread.give(caller, {"c2": "wet, and cold"})
    last = await thread.answer(thread.add("results", [], caller))
    assert last.text == "Stay in."
    assert sent(provider)[: len(asked)] == asked
    assert "wet, and cold" in "".join(sent(provider))
    assert "(branching)" not in "".join(sent(provider))

    again = thread.say("And tomorrow?", branches[0])
    provider.will(Say("Dry."))
    assert (await thread.answer(again)).text == "Dry."
    assert "It is wet." in "".join(sent(provider))
    assert "It is cold." not in "".join(sent(provider))
