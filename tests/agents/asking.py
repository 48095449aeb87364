"""Conversations whose tools ask inside branches; a new agent does each step."""

from collections.abc import Callable
from random import Random
from typing import Any

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Capabilities, tool
from anabranch.agents import Agent, BranchSelf, Event, Folding
from anabranch.folding import BranchService
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, text_of
from anabranch.testing import MockModel, calls
from anabranch.tree import HEAD, Node, Tree, TreeStore, open_questions, project
from tests.agents.harness import faults, heard, results_in
from tests.agents.memory import MemoryTrees
from tests.durable.stores import Modelled


class Number(BaseModel):
    n: int


def number(n: int) -> ElicitReply:
    return ElicitReply(action="accept", content={"n": n})


DONE: list[tuple[str, str]] = []


def do(what: str, key: str) -> str:
    DONE.append((what, key))
    return what


def names() -> list[str]:
    return [what for what, _ in DONE]


async def asked(ctx: BranchContext, what: str) -> str:
    """Ask for a number; return the number, or the user's other action."""
    answer = await ctx.elicit(Number, what)
    return str(answer.content.n) if isinstance(answer, Accepted) else answer.action


@tool
async def ask(ctx: BranchContext, name: str, twice: bool = False) -> str:
    """Ask for a number, with an effect before and after."""
    await ctx.step(do, f"{name} begins", ctx.idempotency_key)
    texts = (f"{name}?", f"{name} again?")[: 1 + twice]
    answers = [await asked(ctx, text) for text in texts]
    said = f"{name}={'+'.join(answers)}"
    await ctx.step(do, said, ctx.idempotency_key)
    return said


def results(request: SampleRequest) -> str:
    """Return the tool results in the last message."""
    return ", ".join(results_in(request.messages[-1].content).values())


def deciding(**replies: SampleReply | str) -> Callable[[SampleRequest], SampleReply | str]:
    """A model that replies by the last message, and repeats tool results."""

    def decide(request: SampleRequest) -> SampleReply | str:
        said = heard(request).removeprefix("(self-prompt): ").partition("Please ")
        name = (said[2].partition(".")[0] if said[1] else said[0]).strip()
        return replies.get(name) or f"said: {results(request)}"

    return decide


def forks(*prompts: str, **more: Any) -> SampleReply:
    given = {"prompts": list(prompts), "allow_work": True, **more}
    return calls(("fork", "branch_self", given))


def asks(name: str, **more: Any) -> SampleReply:
    return calls((f"ask-{name}", "ask", {"name": name, **more}))


class Setting:
    """The stores, and agents over them."""

    def __init__(
        self,
        decide: Callable[[SampleRequest], Any],
        *,
        branches: BranchService | None = None,
        **options: Any,
    ) -> None:
        self.model = MockModel(decide)
        self.trees: TreeStore = MemoryTrees()
        self.store = Modelled()
        self.branches = branches
        self.events: list[Event] = []
        self.options: dict[str, Any] = {"capabilities": Capabilities(), **options}

    def agent(self, **options: Any) -> Agent:
        async def listen(event: Event) -> None:
            self.events.append(event)

        tools = [ask, BranchSelf(), *([Folding(self.branches)] if self.branches else [])]
        given = {"tools": tools, "calls": self.store, "listener": listen, **self.options}
        return Agent(self.trees, self.model, **given, **options)

    async def begin(self, **options: Any) -> Node:
        agent = self.agent(**options)
        return await agent.say((await agent.begin()).id, "go")

    async def ask(self, node: Node) -> dict[str, str]:
        """Return the thread's open questions after a turn, as text to id."""
        found = {each.text: each.id for each in await self.agent().open_questions(node)}
        tree = await self.trees.tree(node.thread_id)
        assert {each.id for each in open_questions(tree)} == set(found.values())
        assert tree.refs[HEAD] == node.id
        return found

    async def answer_all(self, node: Node) -> Node:
        """Answer the open questions one by one with 1, 2 …, until the turn has ended."""
        n = 0
        while asked := await self.ask(node):
            n += 1
            node = await self.agent().answer(asked[min(asked)], number(n))
        await self.check(node)
        return node

    async def check(self, node: Node) -> list[str]:
        """Check that all paths are valid requests and nothing waits; return the kinds of the nodes."""
        nodes = (await self.trees.tree(node.thread_id)).nodes
        for each in nodes:
            path = await self.trees.path(each.id)
            assert faults(project(path.nodes, path.results)) == []
        assert await self.agent().cut_off(node.thread_id) is None
        return [each.kind for each in nodes]


def program(seed: int) -> Callable[[SampleRequest], SampleReply | str]:
    """A model that works, asks and branches by its prompt and the seed."""

    def decide(request: SampleRequest) -> SampleReply | str:
        said = heard(request).removeprefix("(self-prompt): ")
        if not said:
            return f"so: {results(request)}"
        random, depth = Random(f"{seed} {said}"), said.count(".")
        kind = random.choice(["say", "ask", "fork", "fork"]) if depth else "fork"
        if kind == "ask":
            return calls((f"ask {said}", "ask", {"name": said, "twice": random.random() < 0.3}))
        if kind == "say" or depth == 3:
            return f"{said} is done"
        prompts = [f"{said}.{n}" for n in range(random.randint(1, 3) + (depth == 0))]
        more = {"allow_work": True, "parallel": random.random() < 0.8}
        return calls((f"fork {said}", "branch_self", {"prompts": prompts, **more}))

    return decide


def shape(tree: Tree) -> list[Any]:
    """Return the content of a tree without its ids."""

    def below(parent: str | None) -> list[Any]:
        return [
            (
                node.kind,
                node.text,
                [
                    (use.id, text_of(held.content))
                    for use in node.tool_uses
                    if (held := tree.results.get((node.id, use.id)))
                ],
                below(node.id),
            )
            for node in tree.nodes
            if node.parent_id == parent
        ]

    return below(None)


class Confirm(BaseModel):
    ok: bool
