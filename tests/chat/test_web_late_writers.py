"""A process that was suspended adds to the tree what another has added since: it is there once.

One process is held up at an append, another takes its run over, and then both go on.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from anabranch import BranchContext, tool
from anabranch._shielded import run_shielded
from anabranch.agents import BranchSelf, Folding
from anabranch.chat._web.conversation import RUNS
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.event_mapping import shown_in
from anabranch.chat._web.thread_lease import SECONDS
from anabranch.chat._web.thread_log import RUN_ENDS
from anabranch.engines import Wake
from anabranch.folding import BranchService
from anabranch.messages import SampleRequest
from anabranch.stores import open_branch_store, open_run_events, open_stores
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tree import Node, Thread, Tree
from tests.agents.harness import heard
from tests.chat.test_web_shared_branches import Noting
from tests.diary import DONE, note

pytestmark = pytest.mark.usefixtures("nothing_done")

STARTS = b'{"type":"RUN_STARTED"'


@tool
async def book(ctx: BranchContext) -> str:
    """Book."""
    return await ctx.step(note, "booked")


@dataclass
class Held:
    """A tree whose next append of a node of a kind waits; it happens although its task is cancelled."""

    trees: Any
    kind: str
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    may_go: asyncio.Event = field(default_factory=asyncio.Event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trees, name)

    async def append(self, nodes: list[Node], **more: Any) -> None:
        await run_shielded(self._append(nodes, **more))

    async def _append(self, nodes: list[Node], **more: Any) -> None:
        if nodes[-1].kind == self.kind and not self.reached.is_set():
            self.reached.set()
            await self.may_go.wait()
        await self.trees.append(nodes, **more)


@dataclass
class Process:
    """One of two processes on the same store."""

    conversations: Conversations
    tree: Held
    clock: ManualClock

    def work(self) -> asyncio.Task[None]:
        """Begin to work on the run."""
        return asyncio.ensure_future(self.conversations.advance(Wake("t1", "r1", RUNS)))


@asynccontextmanager
async def process(url: str, kind: str, model: MockModel) -> AsyncGenerator[Process]:
    store, trees = open_stores(url)
    branches, clock, tree = open_branch_store(url), ManualClock(), Held(trees, kind)
    tools: list[Any] = [book, BranchSelf(), Folding(BranchService(branches, clock=clock))]
    conversations = Conversations(trees, model, tools, calls=store, engine=Noting(), clock=clock)
    object.__setattr__(conversations.agent.dependencies, "store", tree)
    yield Process(conversations, tree, clock)
    tree.may_go.set()
    await conversations.close()
    await branches.close()
    await store.close()
    await trees.close()


def counting() -> MockModel:
    """A model that says something else each time."""
    number = count(1)
    uses: dict[str, Any] = {
        "fork": ("use_1", "branch_self", {"prompts": ["left", "right"], "parallel": False}),
        "fold": ("use_1", "branch_create", {"description": "A task", "prompt": "Do it."}),
    }

    def reply(request: SampleRequest) -> Any:
        use = uses.get(heard(request))
        return calls(use) if use else f"reply {next(number)}"

    return MockModel(reply)


async def read(url: str, process: Process) -> tuple[Tree, str | None, list[bytes]]:
    """Return the tree, its head, and the thread's events."""
    tree = await process.tree.trees.tree("t1")
    events = open_run_events(url)
    found: list[bytes] = []
    async for _, some in events.follow("t1", 0):
        found += some
        if found[-1].startswith(RUN_ENDS):
            break
    await events.close()
    return tree, tree.refs.get("head"), found


@pytest.mark.parametrize("first", ["the owner", "the late one"])
@pytest.mark.parametrize(
    ("text", "kind", "whole"),
    [
        ("hello", "user", ["user", "assistant"]),
        ("hello", "assistant", ["user", "assistant"]),
        ("/book", "assistant", ["user", "assistant", "results"]),
        (
            "fork",
            "branch",
            ["user", "assistant", "branch", "branch", *["assistant"] * 2, "results", "assistant"],
        ),
        ("fold", "branch", ["user", "assistant", "branch", "assistant", "results", "assistant"]),
    ],
    ids=["message", "reply", "call", "branches", "folding"],
)
async def test_each_node_of_a_run_is_added_once(
    tmp_path: Path,
    first: Literal["the owner", "the late one"],
    text: str,
    kind: str,
    whole: list[str],
) -> None:
    url, model = f"sqlite:///{tmp_path}/chat.db", counting()
    async with process(url, kind, model) as late, process(url, kind, model) as owner:
        conversation = await late.conversations.begin(Thread("t1", 0.0))
        assert conversation is not None
        await conversation.say(text, "r1")
        suspended = late.work()
        await late.tree.reached.wait()
        events = open_run_events(url)
        held_by = await events.holder("t1", 0.0)
        assert held_by is not None
        assert await events.take_over("t1", held_by, "r1/1", math.inf, 1.0)
        working = owner.work()
        await owner.tree.reached.wait()
        late.clock.advance(SECONDS)
        order = [(owner, working), (late, suspended)]
        for each, task in order if first == "the owner" else order[::-1]:
            each.tree.may_go.set()
            await task
        tree, head, reported = await read(url, owner)
        await events.close()
    runs = [json.loads(each) for each in reported if each.startswith((STARTS, *RUN_ENDS))]
    assert [each["type"] for each in runs] == ["RUN_STARTED", "RUN_FINISHED"]
    assert [node.kind for node in tree.nodes] == whole
    assert head == tree.nodes[-1].id
    shown = [json.loads(each)["value"]["id"] for each in reported if shown_in([each])]
    assert shown == [node.id for node in tree.nodes]
    assert ["booked"] * (text == "/book") == DONE
