"""Conversations under an engine that loses, repeats, delays and reorders wakes have the same
outcome.

One application takes the users' requests, and two work on them. The store decides, and periodic work
finds the runs that no wake has reached.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from anabranch import Accepted, BranchContext, tool
from anabranch.chat._web.conversation import Conversation
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.event_mapping import shown_in
from anabranch.chat._web.thread_log import RUN_ENDS
from anabranch.engines import Engine, InProcessEngine
from anabranch.messages import ElicitReply
from anabranch.stores import open_stores
from anabranch.testing import ManualClock, MockModel, TestEngine
from anabranch.tree import Thread
from tests.chat.web import SEAT, decide
from tests.randomised import SEED, times

STEP = 0.0005
"""Seconds by which the clock moves in each pass of the loop: little, since stores work in threads."""

SHARE, LONGEST = 0.3, 4.0
ROW = ElicitReply(action="accept", content={"row": 3})
Talk: TypeAlias = Callable[[Conversation], Awaitable[object]]
STARTS = b'{"type":"RUN_STARTED"'


@dataclass
class Played:
    """The outcome of conversations.

    Attributes:
        trees: the kind and the text of each node, by thread.
        runs: how each run has ended, in order, by thread.
        effects: the effects of the tools.
    """

    trees: dict[str, list[tuple[str, str]]] = field(
        default_factory=dict[str, list[tuple[str, str]]]
    )
    runs: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    effects: list[str] = field(default_factory=list[str])


async def play(engine: Engine, clock: ManualClock, folder: Path) -> Played:
    """Let users ask, answer and stop, on ``engine``."""
    played, working = Played(), asyncio.Event()

    def do(what: str) -> str:
        played.effects.append(what)
        return what

    def give_back(what: str) -> None:
        do(f"give {what} back")

    async def wait() -> None:
        working.set()
        await asyncio.Event().wait()

    @tool(elicits=[SEAT])
    async def seats(ctx: BranchContext) -> str:
        """Reserve two seats, one after the other."""
        rows: list[str] = []
        for name in ("first", "second"):
            answer = await ctx.elicit(SEAT, f"Row of the {name}?")
            assert isinstance(answer, Accepted)
            rows.append(await ctx.step(do, f"{name} in {answer.content.row}"))
        return ", ".join(rows)

    @tool
    async def hold(ctx: BranchContext) -> str:
        """Take a seat, and wait for ever."""
        await ctx.step(do, "take", undo=give_back)
        await ctx.step(wait)
        return "never"

    def application() -> Conversations:
        calls, trees = open_stores(f"sqlite:///{folder}/chat.db")
        stack.push_async_callback(trees.close)
        model, tools = MockModel(decide), [seats, hold]
        return Conversations(trees, model, tools, calls=calls, engine=engine, clock=clock)

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(
            clock.running(STEP)
        )  # and while they stop: some runs wait then
        front, *workers = [application() for _ in range(3)]
        await stack.enter_async_context(front.running(None))
        for each in workers:
            await stack.enter_async_context(each.running(8))
        talks: list[Talk] = [_talk, _reserve, partial(_stop, working=working)]
        await asyncio.gather(
            *(_lead(front, f"t{number}", talk, played) for number, talk in enumerate(talks))
        )
    return played


async def _lead(front: Conversations, name: str, talk: Talk, played: Played) -> None:
    conversation = await front.begin(Thread(name, 0.0))
    assert conversation is not None
    await talk(conversation)
    events = await conversation.log.read(0)
    nodes = (await front.agent.store.tree(name)).nodes
    shown = [json.loads(each)["value"]["id"] for each in events if shown_in([each])]
    assert shown == [node.id for node in nodes]  # each once, in order
    runs = [json.loads(each) for each in events if each.startswith((STARTS, *RUN_ENDS))]
    begun, ended = runs[::2], runs[1::2]
    assert [each["runId"] for each in begun] == [each.get("runId") for each in ended]
    assert len({each["runId"] for each in begun}) == len(begun)
    played.runs[name] = [each["outcome"]["type"] for each in ended]
    played.trees[name] = [(node.kind, node.text) for node in nodes]


async def _ended(conversation: Conversation, after: int) -> dict[str, Any]:
    """Return the end of the run that starts after an event."""
    async with aclosing(conversation.log.follow(after)) as following:
        async for _, events, _ in following:
            for event in events:
                if event.startswith(RUN_ENDS):
                    return dict(json.loads(event))
    raise AssertionError


async def _talk(conversation: Conversation) -> None:
    for number, text in enumerate(["hello", "and again"]):
        await _ended(conversation, await conversation.say(text, f"talk {number}"))


async def _reserve(conversation: Conversation) -> None:
    ended = await _ended(conversation, await conversation.say("/seats", "reserve"))
    for number in range(2):
        [asked] = ended["outcome"]["interrupts"]
        after = await conversation.answer({asked["id"]: ROW}, f"answer {number}")
        assert await conversation.answer({asked["id"]: ROW}, "again") is None
        ended = await _ended(conversation, after or 0)


async def _stop(conversation: Conversation, working: asyncio.Event) -> None:
    after = await conversation.say("/hold", "hold")
    await working.wait()
    assert await conversation.stop()
    await _ended(conversation, after)


@pytest.mark.parametrize("number", range(times(3, gate=1)))
async def test_conversations_have_the_same_outcome_under_every_engine(
    tmp_path: Path, number: int
) -> None:
    calm_clock, clock = ManualClock(), ManualClock()
    seed = int.from_bytes(f"{SEED} {number}".encode())
    engine = TestEngine(seed, drop=SHARE, double=SHARE, delay=SHARE, longest=LONGEST, clock=clock)
    (tmp_path / "calm").mkdir()
    calm = await play(InProcessEngine(calm_clock), calm_clock, tmp_path / "calm")
    disturbed = await play(engine, clock, tmp_path)
    assert disturbed.trees == calm.trees
    assert disturbed.runs == calm.runs
    assert sorted(disturbed.effects) == sorted(calm.effects)
    assert engine.happened.total()
