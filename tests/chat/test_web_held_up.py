"""A process stops at any write of a conversation, another takes over, and then the first continues.

Other processes cannot distinguish a killed process from a suspended one, so each test covers both. One
process stops before a write. Another takes its runs over and ends them, as after a crash. Then the first
resumes and makes its write. Both times the conversation must equal one without the stop.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pytest

from anabranch import BranchContext, tool
from anabranch.agents import BranchSelf, Folding
from anabranch.chat._web.answers import AnswerRefusedError
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.open_work import open_work
from anabranch.chat._web.thread_lease import SECONDS, BusyError
from anabranch.errors import StoreError
from anabranch.folding import BranchService
from anabranch.messages import ElicitReply, SampleRequest
from anabranch.stores import open_branch_store, open_run_events
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tree import HEAD, Thread, is_placeholder
from tests.agents.asking import shape
from tests.agents.harness import heard
from tests.chat.machines import Noting, check_branches, ids_of
from tests.chat.web import SEAT
from tests.diary import DONE, forget, note
from tests.randomised import LONG, SEED
from tests.stores.watched import WatchedDatabase

pytestmark = pytest.mark.usefixtures("nothing_done")

DAY = 86_400.0
GAP = "Calls.record"
"""The write of the effect of a step, which happens again if the write is held up: in any branch."""
POLL = "Database.version"
"""A question whether others have written, which SQLite's writer is asked."""


@tool
async def book(ctx: BranchContext) -> str:
    return await ctx.step(note, "booked", undo=forget)


@tool(elicits=[SEAT])
async def seat(ctx: BranchContext) -> str:
    """Hold a seat, ask for a row, and book the row."""
    await ctx.step(note, "held", undo=forget)
    await ctx.log("info", "a seat is held")
    answer = await ctx.elicit(SEAT, "Which row?")
    return await ctx.step(note, answer.action)


@tool
async def remind(ctx: BranchContext) -> str:
    """Note a line, and remind of it after a day."""
    await ctx.step(note, "milk", undo=forget)
    await ctx.sleep(DAY)
    return await ctx.step(note, "woken")


USES: dict[str, Any] = {
    "book it": ("use", "book", {}),
    "fork": ("use", "branch_self", {"prompts": ["book", "ask"], "allow_work": True}),
    "(self-prompt): book": ("use_b", "book", {}),
    "(self-prompt): ask": ("use_s", "seat", {}),
    "fold": ("use", "branch_create", {"description": "A task", "prompt": "Do it."}),
}


IN_BRANCHES = ["fork", "fold"]


def decide(request: SampleRequest) -> Any:
    said = heard(request)
    return calls(USES[said], text="Let me see.") if said in USES else f"You said {said}."


Place: TypeAlias = tuple[str, int]
"""A write of a process: the method of the store, and which of its calls."""


class Held(WatchedDatabase):
    """The connections of one process; the test stops one write, and then every later request."""

    def __init__(self, url: str, at: Place | None = None) -> None:
        super().__init__(url)
        self.counted: Counter[str] = Counter()
        self.reached, self.continues = asyncio.Event(), asyncio.Event()
        self._at = at
        self.holds_effect = False

    def writes(self, name: str) -> None:
        self.counted[name] += 1
        if (name, self.counted[name]) == self._at:
            self.reached.set()

    async def asked(self, name: str) -> None:
        if self.reached.is_set() and not self.continues.is_set():
            self.holds_effect = self.holds_effect or name == GAP
            await self.continues.wait()


class Process:
    """One of two processes over the same file, each with a user who chooses another row."""

    def __init__(self, database: WatchedDatabase, engine: Noting, row: int) -> None:
        self.row = row
        self.clock = ManualClock()
        self.engine = engine
        calls_of, self.trees = database.stores
        self.branches = open_branch_store(self.trees)
        service = BranchService(self.branches, clock=self.clock)
        self.conversations = Conversations(
            self.trees,
            MockModel(decide),
            [book, seat, remind, BranchSelf(), Folding(service)],
            calls=calls_of,
            engine=engine,
            clock=self.clock,
        )

    async def lead(self, text: str) -> None:
        """Send a message, and run everything that follows to its end."""
        with suppress(BusyError):
            await (await self.conversation()).say(text, "said")
        idle = 0
        while idle < 4:
            await self.engine.look(self.conversations)
            idle = 0 if self.engine.wakes else idle + 1
            if self.engine.wakes:
                wake = min(self.engine.wakes, key=lambda each: each.not_before)
                self.engine.wakes.remove(wake)
                self.clock.advance(max(0.0, wake.not_before - self.clock.now()))
                await self.conversations.advance(wake)
            elif asked := await self.conversations.questions.open_in("t1"):
                name = asked[0].interrupt_id
                chosen = ElicitReply(action="accept", content={"row": self.row})
                with suppress(AnswerRefusedError):
                    conversation = await self.conversation()
                    await conversation.answer({name: chosen}, f"{self.row} {name}")
            else:
                self.clock.advance(SECONDS)

    async def conversation(self) -> Conversation:
        """Return the conversation, and start it first if needed."""
        begun = await self.conversations.begin(Thread("t1", self.clock.now()))
        found = begun or await self.conversations.find("t1", None)
        assert found is not None
        return found


@asynccontextmanager
async def processes(
    url: str, at: Place | None = None
) -> AsyncGenerator[tuple[Process, Process, Held]]:
    engine, held = Noting(), Held(url, at)
    one, two = Process(held, engine, 1), Process(WatchedDatabase(url), engine, 2)
    async with AsyncExitStack() as stack:
        for each in (one, two):
            stack.push_async_callback(each.trees.close)
            stack.push_async_callback(each.conversations.close)
        stack.callback(held.continues.set)
        yield one, two, held


async def said_in(process: Process) -> Any:
    """Check the store, and that a page received everything once; return the tree's content."""
    tree = await process.trees.tree("t1")
    conversation = await process.conversation()
    events = [json.loads(each) for each in await conversation.log.read(0)]
    nodes, shown = [node.id for node in tree.nodes], ids_of(events, "anabranch.node")
    assert len(set(shown)) == len(shown)
    assert sorted(shown) == sorted(nodes)
    check_branches(events)
    assert len(set(notices := ids_of(events, "anabranch.notice"))) == len(notices)
    results = [each["toolCallId"] for each in events if each["type"] == "TOOL_CALL_RESULT"]
    assert sorted(results) == sorted(use.id for node in tree.nodes for use in node.tool_uses)
    ends = [each.get("outcome") for each in events if each["type"] in {"RUN_FINISHED", "RUN_ERROR"}]
    assert ends[-1] == {"type": "success"}
    assert tree.refs[HEAD] in nodes
    assert await process.conversations.agent.cut_off("t1") is None
    stored = open_run_events(process.trees)
    assert await open_work(stored, process.clock.now(), 9) == []
    assert await stored.turn("t1") is None
    return without_ids(shape(tree))


async def check_reported(process: Process) -> None:
    """Check that the log has each stored node and result: no process stores one without its event."""
    try:
        tree = await process.trees.tree("t1")
    except StoreError:  # the first process stopped before it had created the thread
        return
    conversation = await process.conversation()
    events = [json.loads(each) for each in await conversation.log.read(0)]
    assert sorted(ids_of(events, "anabranch.node")) == sorted(node.id for node in tree.nodes)
    shown = {each["toolCallId"] for each in events if each["type"] == "TOOL_CALL_RESULT"}
    assert shown == {key[1] for key, each in tree.results.items() if not is_placeholder(each)}


def without_ids(said: Any) -> Any:
    """Replace the parts that differ: rows, ids of branches, and ids of calls that a user has made."""
    return re.sub(r"(node|br)_[\w-]+|[12]", "id", repr(said))


async def play(url: str, text: str, at: Place) -> tuple[list[Any], list[str], bool]:
    """Let the first process stop; return the content before and after it continued, and the
    effects.

    The last value says whether the stopped write was the record of an effect.
    """
    DONE.clear()
    async with processes(url, at) as (one, two, held):
        first = asyncio.ensure_future(one.lead(text))
        reached = asyncio.ensure_future(held.reached.wait())
        await asyncio.wait({first, reached}, return_when=asyncio.FIRST_COMPLETED)
        if held.reached.is_set():
            await check_reported(two)
        else:  # events reported together may have been stored together
            await first
        two.clock.advance(one.clock.now() - two.clock.now() + 2 * SECONDS)
        await two.lead(text)
        said = [await said_in(two)]
        one.clock.advance(two.clock.now() - one.clock.now())
        held.continues.set()
        async with one.clock.running(0.01):
            await first
        await two.lead(text)
        return ([*said, await said_in(two)], sorted(DONE), held.holds_effect)


@pytest.mark.parametrize("text", ["hello", "/book", "book it", "/seat", "/remind", *IN_BRANCHES])
async def test_a_conversation_is_the_same_at_every_write_where_a_process_stops(
    tmp_path: Path, text: str
) -> None:
    async with processes(f"sqlite:///{tmp_path}/calm.db") as (one, _, held):
        await one.lead(text)
        calm, done = await said_in(one), sorted(DONE)
    places = [(name, n + 1) for name in sorted(held.counted) for n in range(held.counted[name])]
    places = [place for place in places if place[0] not in {POLL, "Trees.create_thread"}]
    if not LONG:
        places = Random(f"{SEED} {text}").sample(places, 4)
    for number, place in enumerate(places):
        said, what, has_gap = await play(f"sqlite:///{tmp_path}/{number}.db", text, place)
        assert said == [calm, calm], place
        assert what == done or (has_gap and set(what) == set(done)), place
