"""A tool of a chat that sleeps is a row: its run waits for a time, and any process goes on with it then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.open_work import cancel, open_work
from anabranch.chat._web.thread_lease import BusyError
from anabranch.chat._web.upkeep import RETAINED
from anabranch.messages import SampleReply, SampleRequest
from anabranch.stores import open_run_events, open_stores
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tree import Thread
from tests.agents.harness import heard
from tests.chat.machines import Noting
from tests.chat.web import on_both_databases
from tests.diary import DONE, forget, note

DAY = 86_400.0
WEEK = 7 * DAY
pytestmark = pytest.mark.usefixtures("nothing_done")


@tool
async def remind(ctx: BranchContext, days: int = 7) -> str:
    """Note something, and remind of it after some days."""
    noted = await ctx.step(note, "milk", undo=forget)
    await ctx.sleep(days * DAY)
    await ctx.step(note, "woken")
    return f"Remember: {noted}"


@tool
async def poll(ctx: BranchContext) -> str:
    """Look three times, an hour apart."""
    for look in ("first", "second", "third"):
        await ctx.step(note, look)
        await ctx.sleep(3600.0)
    return "looked"


@tool
async def work(ctx: BranchContext) -> str:
    """Work until it is stopped."""
    await ctx.step(note, "begun", undo=forget)
    await ctx.log("info", "working")
    await ctx.step(asyncio.Event().wait, name="work")
    return "never"


def decide(request: SampleRequest) -> SampleReply:
    """Call the tools that the person names."""
    uses: list[tuple[str, str, dict[str, Any]]] = []
    uses += [(f"use_{name}", name, {}) for name in heard(request).split()]
    return calls(*uses) if uses else calls(text="Done.")


class Machines:
    """Processes one after the other, or at once, on the same store."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = ManualClock()
        self.engine = Noting()

    @asynccontextmanager
    async def process(
        self, tools: Sequence[Any] = (remind, poll, work), **options: Any
    ) -> AsyncGenerator[Conversations]:
        stored, trees = open_stores(self.url)
        model = MockModel(decide)
        conversations = Conversations(
            trees, model, tools, calls=stored, engine=self.engine, clock=self.clock, **options
        )
        try:
            yield conversations
        finally:
            await conversations.close()
            await stored.close()
            await trees.close()

    async def begun(self, process: Conversations, text: str) -> Conversation:
        """A conversation whose first run has come as far as it can."""
        conversation = await process.begin(Thread("t1", self.clock.now()))
        assert conversation is not None
        await conversation.say(text, "r1")
        await process.advance(self.engine.wakes[-1])
        return conversation

    async def open(self, process: Conversations) -> Conversation:
        found = await process.find("t1", None)
        assert found is not None
        return found

    async def held(self) -> str | None:
        """Who has the thread: a run, or what is to be done at a time."""
        events = open_run_events(self.url)
        found = await events.holder("t1", 0.0)
        await events.close()
        return found

    async def work(self) -> list[tuple[str, str, int, float]]:
        events = open_run_events(self.url)
        found = await open_work(events, self.clock.now(), 10)
        await events.close()
        return [(each.run, each.state, each.attempt, each.until) for each in found]


async def events_of(conversation: Conversation) -> list[dict[str, Any]]:
    return [json.loads(each) for each in await conversation.log.read(0)]


async def until_both(conversation: Conversation) -> None:
    """Return when one tool sleeps, and the other works."""
    async with aclosing(conversation.log.follow(0)) as following:
        seen = b""
        async for _, events, _ in following:
            seen += b"".join(events)
            if b"anabranch.sleep" in seen and b"anabranch.notice" in seen:
                return


async def ends_of(conversation: Conversation) -> list[str]:
    events = await events_of(conversation)
    return [each["outcome"]["type"] for each in events if each["type"] == "RUN_FINISHED"]


@on_both_databases
async def test_a_run_whose_tool_sleeps_is_handed_over_until_its_time(url: str) -> None:
    machines = Machines(url)
    at = machines.clock.now() + WEEK
    async with machines.process() as process:
        conversation = await machines.begun(process, "remind")
        assert machines.engine.wakes[-1].not_before == at
        assert await conversation.is_running()
        assert conversation.is_idle
        assert await machines.work() == [("r1", "asleep", 0, at)]
        assert await process.backlog.counted(10) == (0, 0)
        with pytest.raises(BusyError):
            await conversation.say("more", "r2")
        sleeps = [
            e["value"] for e in await events_of(conversation) if e.get("name") == "anabranch.sleep"
        ]
        assert sleeps == [{"toolCallId": "use_remind", "until": at}]
    machines.clock.advance(WEEK)
    async with machines.process() as process:
        await process.advance(machines.engine.wakes[-1])
        conversation = await machines.open(process)
        assert await ends_of(conversation) == ["success"]
        assert not await conversation.is_running()
        await process.advance(machines.engine.wakes[-1])  # the same wake once more
    assert DONE == ["milk", "woken"]


async def test_a_run_outlives_its_old_events(url: str) -> None:
    """A week after the last event of a thread its events are pruned, unless a run is open there."""
    machines = Machines(url)
    async with machines.process() as process:
        conversation = await machines.begun(process, "/remind days=30")
        machines.clock.advance(RETAINED + 1.0)
        await process.upkeep.prune()
        assert len(await events_of(conversation)) > 1
        machines.clock.advance(30 * DAY)
        await process.advance(machines.engine.wakes[-1])
        assert await ends_of(conversation) == ["success"]
    assert DONE == ["milk", "woken"]


@pytest.mark.parametrize("by_command", [False, True], ids=["page", "command"])
async def test_what_a_run_has_done_that_is_stopped_in_its_sleep_is_undone(
    url: str, by_command: bool
) -> None:
    """By a worker, since the one that stops it may have none of its tools."""
    machines = Machines(url)
    async with machines.process() as process:
        conversation = await machines.begun(process, "remind")
        machines.clock.advance(DAY)
        machines.engine.wakes.clear()
        events = open_run_events(url)
        stop = partial(cancel, events, "t1", machines.clock) if by_command else conversation.stop
        stopping = asyncio.ensure_future(stop())
        while not machines.engine.wakes:  # until its run waits for a worker
            await process.upkeep.call_workers()
        await process.advance(machines.engine.wakes[-1])
        assert await stopping
        await events.close()
        assert DONE == ["milk", "not milk"]
        assert await ends_of(conversation) == ["cancelled"]
        assert not await conversation.is_running()
        machines.clock.advance(WEEK)
        for wake in list(machines.engine.wakes):
            await process.advance(wake)
        assert await ends_of(conversation) == ["cancelled"]
        results = [e for e in await events_of(conversation) if e["type"] == "TOOL_CALL_RESULT"]
        assert len(results) == 1
        await conversation.say("poll", "r2")
        await process.advance(machines.engine.wakes[-1])
    assert DONE == ["milk", "not milk", "first"]


async def test_what_sleeps_is_undone_if_the_run_is_stopped_while_another_tool_works(
    url: str,
) -> None:
    machines = Machines(url)
    async with machines.process() as process:
        conversation = await process.begin(Thread("t1", machines.clock.now()))
        assert conversation is not None
        await conversation.say("remind work", "r1")
        advancing = asyncio.ensure_future(process.advance(machines.engine.wakes[-1]))
        await until_both(conversation)
        assert await conversation.stop()
        await advancing
        assert sorted(DONE) == ["begun", "milk", "not begun", "not milk"]
        assert await ends_of(conversation) == ["cancelled"]
        machines.clock.advance(WEEK)
        await process.advance(machines.engine.wakes[-1])
        assert await ends_of(conversation) == ["cancelled"]
