"""An agent with folding, and the replies that open and close branches."""

from collections.abc import Callable, Sequence
from typing import Any

from anabranch import BranchContext, Capabilities, tool
from anabranch.agents import Agent, AgentTool, Folding, TurnLimits
from anabranch.folding import Branch, BranchService, BranchStore, FoldingSettings, InjectedItem
from anabranch.messages import Message, SampleReply, SampleRequest
from anabranch.stores import open_branch_store
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tool import Tool
from anabranch.tree import Node, project
from tests.agents.harness import Setting
from tests.agents.memory import MemoryTrees

Reply = str | SampleReply | Exception


class Talk(Setting):
    """An agent with folding, and one thread."""

    def __init__(
        self,
        agent: Agent,
        model: MockModel,
        thread_id: str,
        branches: BranchService,
        clock: ManualClock,
    ) -> None:
        super().__init__(agent, model, thread_id, [])
        self.branches = branches
        self.clock = clock

    async def records(self) -> list[Branch]:
        return await self.branches.branches(self.thread_id)

    async def path(self, node: Node) -> tuple[Message, ...]:
        found = await self.agent.store.path(node.id)
        return project(found.nodes, found.results)


async def talk(
    decide: Callable[[SampleRequest], Any],
    *tools: Tool[Any] | AgentTool,
    limits: TurnLimits | None = None,
    memory: Any = None,
    store: BranchStore | None = None,
    capabilities: Capabilities | None = None,
    **settings: Any,
) -> Talk:
    clock = ManualClock()
    branches = BranchService(
        store or open_branch_store("memory:"),
        FoldingSettings(**settings),
        memory=memory,
        clock=clock,
    )
    model = MockModel(decide)
    agent = Agent(
        MemoryTrees(),
        model,
        tools=[Folding(branches), *tools],
        limits=limits,
        clock=clock,
        capabilities=capabilities,
    )
    return Talk(agent, model, (await agent.begin()).id, branches, clock)


def create(description: str = "count", use: str = "c", **more: Any) -> SampleReply:
    """Return a reply that opens a branch; ``creates`` makes a reply that opens several."""
    given = {"description": description, "prompt": f"Please {description}.", **more}
    return calls((use, "branch_create", given))


def returns(message: str, **more: Any) -> SampleReply:
    return calls(("r", "branch_return", {"message": message, **more}))


def heard(request: SampleRequest) -> str:
    """Return the text of the last message, or its tool results."""
    last = request.messages[-1]
    results = [
        "".join(part.text for part in block.content if part.type == "text")
        for block in last.content
        if block.type == "tool_result"
    ]
    return last.text or " | ".join(results)


def in_branch(request: SampleRequest) -> bool:
    return any(message.text.startswith("(branch br_") for message in request.messages)


SEEN = "a long text " * 30


@tool
async def look(ctx: BranchContext, what: str) -> str:
    return f"{what}: {SEEN}"


class Learning:
    """A memory that has some items, and learns."""

    def __init__(self, *items: InjectedItem) -> None:
        self.items = items
        self.queued: list[tuple[Branch, str]] = []

    async def recall(self, text: str, **more: Any) -> Sequence[InjectedItem]:
        return self.items

    async def queue(self, branch: Branch, transcript: str) -> bool:
        self.queued.append((branch, transcript))
        return True
