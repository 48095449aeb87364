"""Tools of a chat that sleep or ask with a time limit, and processes that work on them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch._durable import TurnRecord
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.open_work import open_work
from anabranch.messages import ElicitReply, SampleReply, SampleRequest
from anabranch.stores import open_run_events, open_stores
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tree import Thread
from tests.agents.harness import heard
from tests.chat.machines import Noting
from tests.diary import forget, note

DAY = 86_400.0

WEEK = 7 * DAY


@tool
async def remind(ctx: BranchContext, days: int = 7) -> str:
    """Note a line, and remind of it after some days."""
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
    await ctx.step(note, "begun", undo=forget)
    await ctx.log("info", "working")
    await ctx.step(asyncio.Event().wait, name="work")
    return "never"


def decide(request: SampleRequest) -> SampleReply:
    """Call the tools that the user names."""
    uses: list[tuple[str, str, dict[str, Any]]] = []
    uses += [(f"use_{name}", name, {}) for name in heard(request).split()]
    return calls(*uses) if uses else calls(text="Done.")


class Machines:
    """Processes on the same store, one after the other or at the same time."""

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
        """Return a conversation whose first run has ended or waits."""
        conversation = await process.begin(Thread("t1", self.clock.now()))
        assert conversation is not None
        await conversation.say(text, "r1")
        await process.advance(self.engine.wakes[-1])
        return conversation

    async def open(self, process: Conversations) -> Conversation:
        found = await process.find("t1", None)
        assert found is not None
        return found

    async def held(self) -> TurnRecord | Sequence[str] | None:
        """Return the stored turn of the thread, or the time of its next look for work."""
        events = open_run_events(self.url)
        found = await events.turn("t1") or await events.claim(1e12, 1e12, 9) or None
        await events.close()
        return found

    async def work(self) -> list[tuple[str, str, int, float]]:
        events = open_run_events(self.url)
        found = await open_work(events, self.clock.now(), 10)
        await events.close()
        return [(each.run, each.state, each.attempt, each.until) for each in found]


async def events_of(conversation: Conversation) -> list[dict[str, Any]]:
    return [json.loads(each) for each in await conversation.log.read(0)]


async def ends_of(conversation: Conversation) -> list[str]:
    events = await events_of(conversation)
    return [each["outcome"]["type"] for each in events if each["type"] == "RUN_FINISHED"]


async def asked(conversation: Conversation) -> dict[str, Any]:
    """Return the one question at which the last run has ended."""
    ended = [each for each in await events_of(conversation) if each["type"] == "RUN_FINISHED"]
    [interrupt] = ended[-1]["outcome"]["interrupts"]
    return dict(interrupt)


class Seat(BaseModel):
    row: int


@tool
async def seat(ctx: BranchContext, limit_first: bool = False) -> str:
    """Hold a seat, and ask for a row; after a day, take any row."""
    await ctx.step(note, "held", undo=forget)
    asking, limit = ctx.elicit(Seat, "Which row?"), ctx.sleep(DAY)
    if limit_first:
        answer = await ctx.race(limit, asking)
    else:
        answer = await ctx.race(asking, limit)
    row = f"row {answer.content.row}" if isinstance(answer, Accepted) else "any row"
    return await ctx.step(note, row)


ROW = ElicitReply(action="accept", content={"row": 7})
