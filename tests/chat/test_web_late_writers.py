"""A process that was suspended adds to the tree what another has added since: it is there once.

One process is held up at an append, another takes its run over, and then both go on.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from anabranch import BranchContext, tool
from anabranch._durable.run_events import NewEvents
from anabranch._shielded import run_shielded
from anabranch.agents import BranchSelf, Folding
from anabranch.chat._web.conversation import RUNS, Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.event_mapping import shown_in
from anabranch.chat._web.thread_lease import SECONDS
from anabranch.chat._web.thread_log import RUN_ENDS
from anabranch.engines import Wake
from anabranch.errors import StoreError
from anabranch.folding import BranchService
from anabranch.messages import ElicitReply, SampleRequest
from anabranch.models import ModelError
from anabranch.stores import open_branch_store, open_run_events, open_stores
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tree import Node, Thread, Tree
from tests.agents.harness import heard
from tests.chat.test_web_shared_branches import Noting
from tests.chat.web import SEAT
from tests.diary import DONE, note

pytestmark = pytest.mark.usefixtures("nothing_done")

STARTS = b'{"type":"RUN_STARTED"'


@tool
async def book(ctx: BranchContext) -> str:
    """Book."""
    return await ctx.step(note, "booked")


@tool(elicits=[SEAT])
async def seat(ctx: BranchContext) -> str:
    """Ask for a row."""
    answer = await ctx.elicit(SEAT, "Which row?")
    return answer.action


@dataclass
class Held:
    """A tree of which one append waits; it happens although its task is cancelled."""

    trees: Any
    holds: Callable[[Node], object]
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    may_go: asyncio.Event = field(default_factory=asyncio.Event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trees, name)

    async def append(self, nodes: list[Node], **more: Any) -> None:
        await run_shielded(self._append(nodes, **more))

    async def _append(self, nodes: list[Node], **more: Any) -> None:
        if self.holds(nodes[-1]) and not self.reached.is_set():
            self.reached.set()
            await self.may_go.wait()
        await self.trees.append(nodes, **more)


@dataclass
class Process:
    """One of two processes on the same store."""

    conversations: Conversations
    engine: Noting
    tree: Held
    clock: ManualClock

    async def work_on(self, text: str) -> asyncio.Task[None]:
        """Begin a run, and to work on it."""
        conversation = await self.conversations.begin(Thread("t1", 0.0))
        assert conversation is not None
        await conversation.say(text, "r1")
        await self.engine.next("t1")
        return self.work()

    def let_lease_run_out(self) -> None:
        """Have the lease be over by the clock here, before anyone renews it."""
        events: Any = vars(self.conversations)["_events"]

        async def away(*_: object) -> bool:
            raise StoreError("The store cannot be reached.")

        events.renew = away
        self.clock.advance(SECONDS)

    def work(self) -> asyncio.Task[None]:
        """Begin to work on the run."""
        return asyncio.ensure_future(self.conversations.advance(Wake("t1", "r1", RUNS)))


def never(_: Node) -> bool:
    return False


@asynccontextmanager
async def process(
    url: str, model: MockModel, holds: Callable[[Node], object] = never
) -> AsyncGenerator[Process]:
    store, trees = open_stores(url)
    engine, clock, tree = Noting(), ManualClock(), Held(trees, holds)
    branches = open_branch_store(url)
    tools: list[Any] = [book, seat, BranchSelf(), Folding(BranchService(branches, clock=clock))]
    conversations = Conversations(trees, model, tools, calls=store, engine=engine, clock=clock)
    object.__setattr__(conversations.agent.dependencies, "store", tree)
    try:
        yield Process(conversations, engine, tree, clock)
    finally:
        tree.may_go.set()
        await conversations.close()
        await branches.close()
        await store.close()
        await trees.close()


async def take_over(url: str, name: str = "r1/1") -> None:
    """Have the run wait for another process, as when its process has died."""
    events = open_run_events(url)
    held_by = await events.holder("t1", 0.0)
    assert held_by is not None
    assert await events.take_over("t1", held_by, name, math.inf, 1.0)
    await events.close()


def counting() -> MockModel:
    """A model that says something else each time."""
    number = count(1)
    uses: dict[str, Any] = {
        "book it": ("use_1", "book", {}),
        "fork": ("use_1", "branch_self", {"prompts": ["left", "right"], "parallel": False}),
        "fork to work": ("use_1", "branch_self", {"prompts": ["left"], "allow_work": True}),
        "(self-prompt): left": ("use_2", "book", {}),
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
    async for _, some, _ in events.follow("t1", 0):
        found += some
        if found[-1].startswith(RUN_ENDS):
            break
    await events.close()
    return tree, tree.refs.get("head"), found


async def kinds_shown(url: str, process: Process) -> list[str]:
    """Return the kinds of the nodes, of which each was shown once, in order, in one run."""
    tree, head, events = await read(url, process)
    runs = [json.loads(each) for each in events if each.startswith((STARTS, *RUN_ENDS))]
    assert [each["type"] for each in runs] == ["RUN_STARTED", "RUN_FINISHED"]
    shown = [json.loads(each)["value"]["id"] for each in events if shown_in([each])]
    assert shown == [node.id for node in tree.nodes]
    assert head == shown[-1]
    return [node.kind for node in tree.nodes]


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

    def holds(node: Node) -> bool:
        return node.kind == kind

    async with process(url, model, holds) as late, process(url, model, holds) as owner:
        suspended = await late.work_on(text)
        await late.tree.reached.wait()
        await take_over(url)
        working = owner.work()
        await owner.tree.reached.wait()
        late.clock.advance(SECONDS)
        order = [(owner, working), (late, suspended)]
        for each, task in order if first == "the owner" else order[::-1]:
            each.tree.may_go.set()
            await task
        assert await kinds_shown(url, owner) == whole
    assert DONE.count("booked") == len(DONE) == (text == "/book")


async def test_a_lease_that_is_over_is_no_failure_of_a_branch(tmp_path: Path) -> None:
    url, model = f"sqlite:///{tmp_path}/chat.db", counting()

    def holds(node: Node) -> bool:
        return [use.name for use in node.tool_uses] == ["book"]

    async with process(url, model, holds) as late, process(url, model) as owner:
        suspended = await late.work_on("fork to work")
        await late.tree.reached.wait()
        await take_over(url)
        await owner.work()
        left = await read(url, owner)
        late.let_lease_run_out()
        late.tree.may_go.set()
        await suspended
        assert await read(url, owner) == left
    assert DONE == ["booked"]


async def test_a_reply_that_breaks_off_after_a_suspension_is_asked_for_again(
    tmp_path: Path,
) -> None:
    """The connection to the model is gone when the process wakes up."""
    url, answering, asleep = f"sqlite:///{tmp_path}/chat.db", asyncio.Event(), asyncio.Event()

    async def breaking() -> AsyncIterator[str]:
        yield "Hel"
        answering.set()
        await asleep.wait()
        raise ModelError("The connection is broken.")

    replies: Iterator[Any] = iter([breaking(), "Hello."])
    async with process(url, MockModel(lambda _: next(replies))) as late:
        working = await late.work_on("hello?")
        await answering.wait()
        await take_over(url)
        late.let_lease_run_out()
        asleep.set()
        await working
        await late.work()  # it takes the run once more, as any other could
        tree, head, _ = await read(url, late)
    assert [node.text for node in tree.nodes] == ["hello?", "Hello."]
    assert head == tree.nodes[-1].id


def is_answer(node: Node) -> bool:
    return node.kind == "answer"


async def held_answer(web: Process) -> tuple[Conversation, asyncio.Future[int | None]]:
    """Ask, and answer in a run of its own, whose process is held up before it stores the answer."""
    await (await web.work_on("/seat"))
    conversation = await web.conversations.find("t1", None)
    assert conversation is not None
    asked = (await web.tree.trees.tree("t1")).nodes[-1]
    reply = ElicitReply(action="accept", content={"row": 3})
    answering = asyncio.ensure_future(conversation.answer({asked.id: reply}, "r2"))
    await web.tree.reached.wait()
    return conversation, answering


async def test_an_answer_that_is_stored_late_is_acted_upon(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run that began with it has ended meanwhile, without it."""
    url = f"sqlite:///{tmp_path}/chat.db"

    async with process(url, counting(), is_answer) as web, process(url, counting()) as worker:
        conversation, answering = await held_answer(web)
        await take_over(url, "r2/1")
        await worker.work()
        web.clock.advance(SECONDS)
        while "another worker has taken it over" not in caplog.text:  # noqa: ASYNC110 - a thread's work
            await asyncio.sleep(0)
        web.tree.may_go.set()
        await answering
        [wake] = web.engine.wakes
        await worker.conversations.advance(wake)
        tree, _, _ = await read(url, worker)
        events = await conversation.log.read(0)
    assert [node.kind for node in tree.nodes][-2:] == ["answer", "results"]
    assert shown_in(events) == {node.id for node in tree.nodes}


async def test_an_answer_that_is_reported_late_is_shown(tmp_path: Path) -> None:
    """The lease is over before it is reported, and no one has taken the run over."""
    url = f"sqlite:///{tmp_path}/chat.db"

    async with process(url, counting(), is_answer) as web, process(url, counting()) as worker:
        conversation, answering = await held_answer(web)
        web.let_lease_run_out()
        web.tree.may_go.set()
        await answering
        await worker.work()
        tree = await worker.tree.trees.tree("t1")
        events = await conversation.log.read(0)
    assert [node.kind for node in tree.nodes][-2:] == ["answer", "results"]
    shown = [json.loads(each)["value"]["id"] for each in events if shown_in([each])]
    assert shown == [node.id for node in tree.nodes]


async def test_a_message_that_is_stored_late_is_shown(tmp_path: Path) -> None:
    """It is not there when its process is found to be gone, and is when the other looks for it."""
    url, model = f"sqlite:///{tmp_path}/chat.db", counting()

    def holds(node: Node) -> bool:
        return node.kind == "user"

    async with process(url, model, holds) as late, process(url, model) as owner:
        looking, may_look = asyncio.Event(), asyncio.Event()
        find = owner.tree.trees.node

        async def node(node_id: str) -> Node | None:
            looking.set()
            await may_look.wait()
            found: Node | None = await find(node_id)
            return found

        owner.tree.trees.node = node
        suspended = await late.work_on("hello")
        await late.tree.reached.wait()
        await take_over(url)
        working = owner.work()
        await looking.wait()
        late.clock.advance(SECONDS)
        late.tree.may_go.set()
        await suspended
        may_look.set()
        await working
        assert await kinds_shown(url, owner) == ["user", "assistant"]


async def test_a_question_that_was_not_reported_is_shown_although_its_answer_is(
    tmp_path: Path,
) -> None:
    """Its process was suspended when it had stored it; a person who read the tree has answered."""
    url = f"sqlite:///{tmp_path}/chat.db"
    async with process(url, counting()) as late, process(url, counting()) as owner:
        events: Any = vars(late.conversations)["_events"]
        append_all, reports, may_report = events.append_all, asyncio.Event(), asyncio.Event()

        async def suspended(new: Sequence[NewEvents], *, at: float) -> None:
            if any(b'"kind":"question"' in event for each in new for event in each.events):
                reports.set()
                await may_report.wait()
                raise StoreError("The store cannot be reached.")
            await append_all(new, at=at)

        events.append_all = suspended
        working = await late.work_on("/seat")
        await reports.wait()
        conversation = await owner.conversations.find("t1", None)
        assert conversation is not None
        asked = (await owner.tree.trees.tree("t1")).nodes[-1]
        reply = ElicitReply(action="accept", content={"row": 3})
        await conversation.answer({asked.id: reply}, "r2")
        await take_over(url)
        await owner.work()
        late.clock.advance(SECONDS)
        may_report.set()
        async with late.clock.running():
            await working
        tree = await owner.tree.trees.tree("t1")
        shown = await conversation.log.read(0)
    ids = [json.loads(each)["value"]["id"] for each in shown if shown_in([each])]
    assert sorted(ids) == sorted(node.id for node in tree.nodes)


@pytest.mark.parametrize(("text", "reply"), [("/book", []), ("book it", ["assistant"])])
async def test_results_that_another_has_stored_without_reporting_them_are_shown(
    tmp_path: Path, text: str, reply: list[str]
) -> None:
    """The process that has the run finds them when it is about to store them itself, and goes on."""
    url = f"sqlite:///{tmp_path}/chat.db"

    def holds(node: Node) -> bool:
        return node.kind == "results"

    async with process(url, counting(), holds) as late, process(url, counting(), holds) as owner:
        suspended = await late.work_on(text)
        await late.tree.reached.wait()
        await take_over(url)
        working = owner.work()
        await owner.tree.reached.wait()
        late.let_lease_run_out()
        late.tree.may_go.set()
        await suspended
        owner.tree.may_go.set()
        await working
        assert await kinds_shown(url, owner) == ["user", "assistant", "results", *reply]
