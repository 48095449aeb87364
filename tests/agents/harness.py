"""Agents on a tree in memory, and the rules that every thread must meet after a turn."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

import anyio
import pytest

from anabranch import Answerer, Capabilities, Clock
from anabranch._asking import Absent
from anabranch._budget import Limits
from anabranch.agents import (
    Agent,
    AgentTool,
    BranchSelf,
    Event,
    Listener,
    Question,
    ToolSource,
    TurnLimits,
    ignore_event,
)
from anabranch.mcp import Durability
from anabranch.messages import ElicitReply, Message, SampleReply, SampleRequest, ToolResultBlock
from anabranch.stores import CallStore
from anabranch.testing import MockModel, ModelFunction
from anabranch.testing import calls as calling
from anabranch.tool import Tool
from anabranch.tree import Node, Tree, TreeStore, load_files, media_places, project, without
from tests.agents.memory import MemoryTrees
from tests.models.provider_rules import messages_faults
from tests.patience import PATIENCE


class Setting:
    """An agent with one thread, the requests to its model, and its events."""

    def __init__(self, agent: Agent, model: MockModel, thread_id: str, events: list[Event]) -> None:
        self.agent = agent
        self.model = model
        self.thread_id = thread_id
        self.events = events

    async def say(self, text: str, *, at: str | None = None) -> Node:
        return await self.agent.say(self.thread_id, text, at=at)

    async def tree(self) -> Tree:
        return await self.agent.store.tree(self.thread_id)

    async def of_kind(self, kind: str) -> list[Node]:
        return [node for node in (await self.tree()).nodes if node.kind == kind]

    async def caller(self) -> Node:
        """Return the one node that calls tools."""
        [node] = [node for node in (await self.tree()).nodes if node.tool_uses]
        return node

    async def results(self, node: Node) -> dict[str, str]:
        """Return the tool results before ``node``, as the model sees them there."""
        path = await self.agent.store.path(node.id)
        return results_in(project(path.nodes, path.results)[-1].content)

    async def check(self) -> Tree:
        """Check that every path is a valid request; return the tree."""
        tree = await self.tree()
        for node in tree.nodes:
            path = await self.agent.store.path(node.id)
            messages = project(path.nodes, path.results)
            sent = await load_files(self.agent.store, node.thread_id, messages)
            assert faults(sent) == []
        for request in self.model.requests:
            assert faults(request.messages) == []
        return tree


async def set_up(
    decide: ModelFunction,
    *,
    tools: Iterable[Tool[Any] | AgentTool | ToolSource] = (),
    store: TreeStore | None = None,
    user: Answerer | None = None,
    limits: TurnLimits | None = None,
    branch_self: AgentTool | None = None,
    listener: Listener = ignore_event,
    clock: Clock | None = None,
    calls: CallStore | Durability | None = None,
    tool_limits: Limits | None = None,
    capabilities: Capabilities | None = None,
) -> Setting:
    model, events = MockModel(decide), list[Event]()

    async def listen(event: Event) -> None:
        events.append(event)
        await listener(event)

    agent = Agent(
        store or MemoryTrees(),
        model,
        tools=[branch_self or BranchSelf(), *tools],
        user=user,
        limits=limits,
        listener=listen,
        clock=clock,
        calls=calls,
        tool_limits=tool_limits,
        capabilities=capabilities,
    )
    return Setting(agent, model, (await agent.begin()).id, events)


class Answering(Absent):
    """A user who answers by a function of the question."""

    capabilities = Capabilities()

    def __init__(self, answer: Callable[[Question], ElicitReply | Awaitable[ElicitReply]]) -> None:
        self._answer = answer

    async def elicit(self, question: Question, /, *, step_id: str) -> ElicitReply:
        reply = self._answer(question)
        return reply if isinstance(reply, ElicitReply) else await reply


async def interrupted(work: Coroutine[Any, Any, Any], at: asyncio.Event) -> None:
    """Start ``work``, and cancel it once it has set ``at``."""
    task = asyncio.ensure_future(work)
    with anyio.fail_after(PATIENCE):
        await at.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


def faults(messages: Sequence[Message]) -> list[str]:
    """Return Anthropic's rules that the messages break; Anthropic's models accept no sounds."""
    sounds = [place for place in media_places(messages) if _at(messages, place) == "audio"]
    sent = [each.model_dump(mode="json") for each in without(messages, sounds)]
    return messages_faults({"max_tokens": 1, "messages": sent})


def _at(messages: Sequence[Message], place: tuple[int, ...]) -> str:
    block = messages[place[0]].content[place[1]]
    return block.content[place[2]].type if isinstance(block, ToolResultBlock) else block.type


def heard(request: SampleRequest) -> str:
    """Return the text of the last message, without tool results."""
    return request.messages[-1].text


def results_in(blocks: Iterable[object]) -> dict[str, str]:
    return {
        block.tool_use_id: "".join(part.text for part in block.content if part.type == "text")
        for block in blocks
        if isinstance(block, ToolResultBlock)
    }


def fork(*prompts: str, use: str = "fork", **more: Any) -> SampleReply:
    """A reply that calls ``branch_self``."""
    return calling((use, "branch_self", {"prompts": list(prompts), **more}))
