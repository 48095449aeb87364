"""Branches side by side are calls of their own: any process works on one, and each event comes once."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from random import Random
from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch.agents import BranchSelf
from anabranch.chat._web.branch_work import CUT_OFF, GIVEN_UP
from anabranch.chat._web.conversation import RUNS, Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.open_work import cancel, open_work
from anabranch.engines import InProcessEngine, Wake
from anabranch.messages import SampleRequest, text_of
from anabranch.stores import open_run_events, open_stores
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tree import Node, Thread, Tree
from tests.agents.test_shared_branches import program
from tests.agents.test_waiting_branches import Number, ask, deciding, forks, number
from tests.chat.test_web_events import process
from tests.chat.web import message, on_both_databases, run
from tests.diary import DONE, forget, note
from tests.randomised import times

pytestmark = pytest.mark.usefixtures("nothing_done")


class Noting(InProcessEngine):
    """An engine without workers: a test takes its wakes."""

    def __init__(self) -> None:
        super().__init__()
        self.wakes: list[Wake] = []
        self._came = asyncio.Event()

    async def wake(self, wake: Wake, *, within: object | None = None) -> None:
        del within
        self.wakes.append(wake)
        self._came.set()

    async def next(self, call: str) -> Wake:
        """Wait for a wake of a call, and take it."""
        while not (found := [each for each in self.wakes if each.call == call]):
            self._came.clear()
            await self._came.wait()
        self.wakes.remove(found[0])
        return found[0]


async def hold() -> None:
    await asyncio.Event().wait()


@tool
async def work(ctx: BranchContext) -> str:
    """Work until it is stopped."""
    await ctx.step(note, "begun", undo=forget)
    await ctx.log("info", "working")
    await ctx.step(hold)
    return "never"


@tool(name="work")
async def busy(ctx: BranchContext) -> str:
    """Work until its process ends."""
    await ctx.step(note, "begun", undo=forget)
    await ctx.log("info", "working")
    await asyncio.Event().wait()
    return "never"


@tool
async def effect(ctx: BranchContext) -> str:
    """Do something."""
    return await ctx.step(note, "done")


class Machines:
    """Processes on the same store; each advance is one of them, in any order."""

    def __init__(self, url: str, decide: Callable[[SampleRequest], Any], seed: int = 0) -> None:
        self.url = url
        self.clock = ManualClock()
        self.engine = Noting()
        self.model = MockModel(decide)
        self.random = Random(seed)
        self.advanced: list[str] = []

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
        """A conversation with a run that waits for a worker."""
        found = await process.begin(Thread("t1", self.clock.now()))
        assert found is not None
        await found.say(text, "r1")
        return found

    async def drive(self, *processes: Conversations) -> None:
        """Take all wakes, one after the other, in any order, each in any process."""
        while self.engine.wakes:
            wake = self.engine.wakes.pop(self.random.randrange(len(self.engine.wakes)))
            self.advanced.append(wake.call)
            await self.random.choice(processes).advance(wake)

    async def answer_all(self, *processes: Conversations) -> None:
        """Answer what is asked, in any process, until nothing is open."""
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
    """Each node, text, tool call and result is in the log once, and all that begins ends."""

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
    """All that happens in a branch is between its beginning and an end, and all of it in a run."""
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


@on_both_databases
@pytest.mark.parametrize("seed", range(times(3, gate=1)))
async def test_any_process_works_on_any_branch(url: str, seed: int) -> None:
    here = Machines(url, program(seed), seed)
    async with here.process() as one, here.process() as two:
        await here.begun(one)
        await here.drive(one, two)
        await here.answer_all(one, two)
        tree = await one.agent.store.tree("t1")
        check(await events_of(two), tree)
        assert await one.agent.cut_off("t1") is None
        events = open_run_events(url)
        assert await open_work(events, here.clock.now(), 10) == []
        await events.close()
    shared = [node.id for node in tree.nodes if "share" in node.data]
    assert {call.partition("/")[2] for call in here.advanced if "/" in call} == set(shared)


async def until_noticed(process: Conversations) -> None:
    """Return when a tool has said that it works."""
    found = await process.find("t1", None)
    assert found is not None
    async with aclosing(found.log.follow(0)) as following:
        async for _, events, _ in following:
            if any(b"anabranch.notice" in event for event in events):
                return


def branching(**replies: Any) -> Callable[[SampleRequest], Any]:
    """A model that opens two branches, one and two."""
    return deciding(go=forks("one", "two"), **{"one": "first", "two": "second", **replies})


async def open_calls(here: Machines) -> list[tuple[str, str, int]]:
    events = open_run_events(here.url)
    found = await open_work(events, here.clock.now(), 10)
    await events.close()
    return [
        (each.thread.partition("/")[2] and "branch", each.state, each.attempt) for each in found
    ]


async def children(here: Machines, process: Conversations) -> list[Wake]:
    """Take the run's wake; return those of its branches."""
    await process.advance(await here.engine.next("t1"))
    found = [each for each in here.engine.wakes if "/" in each.call]
    for each in found:
        here.engine.wakes.remove(each)
    return found


async def outcome(process: Conversations) -> Any:
    events = await events_of(process)
    [end] = [each for each in events if each["type"].startswith("RUN_") and each is not events[0]]
    assert end is events[-1]
    return end.get("outcome", {}).get("type") or end.get("message")


@pytest.mark.parametrize("from_outside", [False, True], ids=["page", "command"])
async def test_a_stop_reaches_the_branches_wherever_they_are(url: str, from_outside: bool) -> None:
    here = Machines(url, branching(one=calls(("use", "work", {}))))
    async with here.process(work) as one, here.process(work) as two:
        conversation = await here.begun(one)
        first, second = await children(here, one)
        working = asyncio.create_task(two.advance(first))
        await until_noticed(one)
        await one.advance(second)
        events = open_run_events(url)
        stop = cancel(events, "t1", here.clock) if from_outside else conversation.stop()
        stopping = asyncio.create_task(stop)
        await working
        assert DONE == ["begun", "not begun"]
        if from_outside:
            await one.upkeep.call_workers()
        await two.advance(await here.engine.next("t1"))
        assert await stopping
        await events.close()
        assert await outcome(one) == "cancelled"
        tree = await one.agent.store.tree("t1")
        [held] = [each for each in tree.results.values() if each.tool_use_id == "fork"]
        shown = text_of(held.pending or held.content)
        assert "1/2 branches completed" in shown
        assert "Interrupted; nothing was recombined." in shown
        assert await open_calls(here) == []
        await here.drive(one, two)
        assert await outcome(one) == "cancelled"


async def test_a_stop_finds_branches_that_no_worker_has_taken(url: str) -> None:
    here = Machines(url, branching())
    async with here.process() as one:
        conversation = await here.begun(one)
        waiting = await children(here, one)
        stopping = asyncio.create_task(conversation.stop())
        await one.advance(await here.engine.next("t1"))
        assert await stopping
        for late in waiting:
            await one.advance(late)
        assert await outcome(one) == "cancelled"
        assert len(here.model.requests) == 1


async def test_a_branch_whose_process_ends_goes_on_in_another(url: str) -> None:
    here = Machines(url, branching(one=calls(("use", "work", {}))))
    async with here.process(busy) as one:
        await here.begun(one)
        first, second = await children(here, one)
        async with here.process(busy) as two:
            working = asyncio.create_task(two.advance(first))
            await until_noticed(one)
            two.agent.suspend()
            working.cancel()
            await asyncio.wait([working])
        assert DONE == ["begun"]
        assert ("branch", "waiting", 1) in await open_calls(here)
        await one.upkeep.call_workers()

        @tool(name="work")
        async def done(ctx: BranchContext) -> str:
            """Work until it is stopped."""
            await ctx.step(note, "begun", undo=forget)
            await ctx.log("info", "working")
            return "at last"

    async with here.process(done) as three:
        await three.advance(second)
        await here.drive(three)
        assert await outcome(three) == "success"
        events = await events_of(three)
        tree = await three.agent.store.tree("t1")
        check_branches(events)
        assert sorted(ids_of(events, "anabranch.node")) == sorted(node.id for node in tree.nodes)
        assert len(ids_of(events, "anabranch.notice")) == 1
    assert DONE == ["begun"]


def ids_of(events: list[dict[str, Any]], name: str) -> list[str]:
    """The ids of what custom events report."""
    return [each["value"]["id"] for each in events if each.get("name") == name]


async def left_by_the_dead(here: Machines, wake: Wake, attempt: int) -> None:
    """As if so many processes had died over a branch."""
    events = open_run_events(here.url)
    start = wake.call.partition("/")[2]
    assert await events.take_over(
        wake.call, f"{start}/0", f"{start}/{attempt - 1}.dead", math.inf, 1.0
    )
    await events.close()


async def test_a_branch_over_which_many_processes_died_is_given_up(url: str) -> None:
    here = Machines(url, branching())
    async with here.process() as one:
        await here.begun(one)
        first, second = await children(here, one)
        await left_by_the_dead(here, first, 5)
        await one.advance(second)
        await one.upkeep.call_workers()
        await here.drive(one)
        assert await outcome(one) == "success"
        assert GIVEN_UP in str(await events_of(one))


async def test_a_branch_cut_off_in_a_tool_is_not_repeated_without_a_store_of_calls(
    url: str,
) -> None:
    here = Machines(url, branching(one=calls(("use", "effect", {}))))
    async with here.process(effect, stored=False) as one:
        await here.begun(one)
        first, second = await children(here, one)
        start = await one.agent.store.node(first.call.partition("/")[2])
        assert start is not None
        use = calls(("use", "effect", {})).content
        called = one.agent.dependencies.node("t1", start.id, "assistant", use)
        await one.agent.add([called], head=False)
        await left_by_the_dead(here, first, 1)
        await one.advance(second)
        await one.upkeep.call_workers()
        await here.drive(one)
        assert await outcome(one) == "success"
        assert CUT_OFF in str(await events_of(one))
    assert DONE == []


async def test_calls_that_are_lost_are_made_again(url: str) -> None:
    """First those of the branches, then that of the run."""
    here = Machines(url, branching())
    async with here.process() as one:
        await here.begun(one)
        lost = await children(here, one)
        here.clock.advance(61.0)
        await one.upkeep.call_workers()
        assert {each.call for each in here.engine.wakes} == {"t1", *(each.call for each in lost)}
        again = [each for each in here.engine.wakes if each.call != "t1"]
        for each in again:
            await one.advance(each)
        here.engine.wakes.clear()
        here.clock.advance(61.0)
        await one.upkeep.call_workers()
        await here.drive(one)
        assert await outcome(one) == "success"


@tool(name="book")
async def book_1(ctx: BranchContext) -> str:
    """Ask, and book."""
    await ctx.step(note, "reserved")
    await ctx.elicit(Number, "How many?")
    return "booked"


@tool(name="book")
async def book_2(ctx: BranchContext) -> str:
    """Look, ask, and book."""
    await ctx.step(note, "looked")
    await ctx.elicit(Number, "How many?")
    return "booked"


async def test_a_branch_waits_for_a_process_with_its_version_of_the_code(url: str) -> None:
    here = Machines(url, branching(one=calls(("use", "book", {}))))
    async with (
        here.process(book_1, code_version="1") as old,
        here.process(book_2, code_version="2") as new,
    ):
        await here.begun(old)
        await here.drive(old)
        [question] = await here.asked(new)
        found = await new.find("t1", None)
        assert found is not None
        await found.answer({question.id: number(4)}, "r2")
        [branch] = await children(here, new)
        await new.advance(branch)
        pinned = await here.engine.next(branch.call)
        assert pinned.version == "1"
        await new.advance(pinned)
        await old.advance(pinned)
        await here.drive(new)
        assert (await events_of(new))[-1]["outcome"] == {"type": "success"}
        assert "booked" in str(await events_of(new))
    assert DONE == ["reserved"]


async def test_wakes_for_what_is_no_branch_of_the_conversation_do_nothing(url: str) -> None:
    here = Machines(url, branching())
    async with here.process() as one:
        await here.begun(one)
        await here.drive(one)
        before = await events_of(one)
        other = await one.agent.begin()
        [node] = await one.agent.put(other.id, [(None, "hello")])
        starts = [each.id for each in (await one.agent.store.tree("t1")).nodes]
        for name in (node.id, "none", *starts):
            await one.advance(Wake(f"t1/{name}", "late", RUNS))
        assert await events_of(one) == before


async def test_one_place_is_enough_for_branches_in_branches(url: str) -> None:
    """What waits for branches holds no place that they need."""
    engine = InProcessEngine()
    options: dict[str, Any] = {"engine": engine, "concurrency": 1, "tools": [BranchSelf()]}
    inner = calls(("inner", "branch_self", {"prompts": ["x", "y"], "allow_work": True}))
    model = MockModel(branching(one=inner, x="X", y="Y"))
    async with process(url, replies=model, **options) as client:
        events = await run(client, message("go"))
    assert events[-1]["outcome"] == {"type": "success"}
    assert "2/2 branches completed" in str(events)
    assert [each["value"]["content"] for each in events if each.get("name") == "anabranch.node"]
