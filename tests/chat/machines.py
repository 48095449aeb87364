"""Processes of a chat over one store, whose wakes the test delivers; and the events that pages receive."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from anabranch.agents import BranchSelf
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.open_work import open_work
from anabranch.engines import InProcessEngine, Wake
from anabranch.messages import SampleRequest
from anabranch.stores import open_run_events, open_stores
from anabranch.testing import ManualClock, MockModel
from anabranch.tree import Node, Thread, Tree
from tests.agents.asking import ask, number


class Noting(InProcessEngine):
    """An engine without workers: the test delivers its wakes."""

    def __init__(self) -> None:
        super().__init__()
        self.wakes: list[Wake] = []
        self._came = asyncio.Event()

    async def wake(self, wake: Wake) -> None:
        self.wakes.append(wake)
        self._came.set()

    async def look(self, process: Conversations) -> None:
        """Let a process look for due work, which the test then delivers like wakes."""
        self.wakes += await process.due.claim()

    async def next(self, call: str) -> Wake:
        """Wait for a wake of a call, and take it."""
        while not (found := [each for each in self.wakes if each.call == call]):
            self._came.clear()
            await self._came.wait()
        self.wakes.remove(found[0])
        return found[0]


class Machines:
    """Processes on the same store; any of them does the next piece of work, in any order."""

    def __init__(self, url: str, decide: Callable[[SampleRequest], Any], seed: int = 0) -> None:
        self.url = url
        self.clock = ManualClock()
        self.engine = Noting()
        self.model = MockModel(decide)
        self.random = Random(seed)

    @asynccontextmanager
    async def process(
        self, *tools: Any, stored: bool = True, **options: Any
    ) -> AsyncGenerator[Conversations]:
        store, trees = open_stores(self.url)
        conversations = Conversations(
            trees,
            self.model,
            [ask, BranchSelf(), *tools],
            calls=store if stored else None,
            engine=self.engine,
            clock=self.clock,
            **options,
        )
        try:
            yield conversations
        finally:
            await conversations.close()
            await store.close()
            await trees.close()

    async def begun(self, process: Conversations, text: str = "go") -> Conversation:
        """Return a conversation with a run that waits for a worker."""
        found = await process.begin(Thread("t1", self.clock.now()))
        assert found is not None
        await found.say(text, "r1")
        return found

    async def drive(self, *processes: Conversations) -> None:
        """Deliver all wakes one by one, in any order, each to any process."""
        while self.engine.wakes:
            wake = self.engine.wakes.pop(self.random.randrange(len(self.engine.wakes)))
            await self.random.choice(processes).advance(wake)

    async def answer_all(self, *processes: Conversations) -> None:
        """Answer the open questions, in any process, until none is open."""
        runs = 1
        while asked := await self.asked(processes[0]):
            runs += 1
            found = await self.random.choice(processes).find("t1", None)
            assert found is not None
            question = min(asked, key=lambda each: each.text)
            await found.answer({question.id: number(len(question.text))}, f"r{runs}")
            await self.drive(*processes)

    async def asked(self, process: Conversations) -> list[Node]:
        head = await process.agent.head("t1")
        node = await process.agent.store.node(head or "")
        assert node is not None
        return await process.agent.open_questions(node)


async def events_of(process: Conversations) -> list[dict[str, Any]]:
    found = await process.find("t1", None)
    assert found is not None
    return [json.loads(event) for event in await found.log.read(0)]


def check(events: list[dict[str, Any]], tree: Tree) -> None:
    """Check that the log has each node, text, tool call and result once, and an end for each start."""

    def seen(kind: str, name: str) -> Counter[str]:
        return Counter(each[name] for each in events if each["type"] == kind)

    nodes = ids_of(events, "anabranch.node")
    assert Counter(nodes) == Counter(node.id for node in tree.nodes)
    uses = Counter(use.id for node in tree.nodes for use in node.tool_uses)
    assert seen("TOOL_CALL_START", "toolCallId") == uses == seen("TOOL_CALL_RESULT", "toolCallId")
    said = [node.text for node in tree.nodes if node.kind == "assistant" and node.text]
    assert seen("TEXT_MESSAGE_CONTENT", "delta") == Counter(said)
    check_branches(events)


def check_branches(events: list[dict[str, Any]]) -> None:
    """Check that all events of a branch are between its start and its end, and inside a run."""
    is_running, open_branches = False, set[object]()
    for event in events:
        kind, branch = event["type"], event.get("subagentRunId")
        if kind == "RUN_STARTED":
            assert not is_running
            is_running = True
        assert is_running, event
        if kind == "SUBAGENT_STARTED":
            assert branch not in open_branches
            open_branches.add(branch)
        assert branch is None or branch in open_branches, event
        if kind == "SUBAGENT_FINISHED":
            open_branches.remove(branch)
        if kind in {"RUN_FINISHED", "RUN_ERROR"}:
            assert not open_branches
            is_running = False


def ids_of(events: list[dict[str, Any]], name: str) -> list[str]:
    return [each["value"]["id"] for each in events if each.get("name") == name]


async def open_runs(here: Machines) -> list[tuple[str, int]]:
    """Return the state of each open run, and the number of processes that left the run or died
    during it.
    """
    events = open_run_events(here.url)
    found = await open_work(events, here.clock.now(), 10)
    await events.close()
    return [(each.state, each.attempt) for each in found]


async def ends(process: Conversations) -> list[str]:
    found = await events_of(process)
    check_branches(found)
    return [each["outcome"]["type"] for each in found if each["type"] == "RUN_FINISHED"]
