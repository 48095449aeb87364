"""A tool that sleeps holds its turn; with a store, another process goes on with it at its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from anabranch import BranchContext, tool
from anabranch._engine.clock import Timer
from anabranch.agents import Agent, CallStore, Durability
from anabranch.messages import SampleReply, SampleRequest, ToolResultBlock
from anabranch.testing import ManualClock, MockModel, calls
from anabranch.tree import Node, Thread
from tests.agents.memory import MemoryTrees
from tests.durable.stores import Modelled

WEEK = 7 * 86_400.0
DAY = 86_400.0
DONE: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    DONE.clear()


def note(what: str) -> str:
    DONE.append(what)
    return what


def forget(what: str) -> None:
    DONE.append(f"not {what}")


@tool
async def remind(ctx: BranchContext) -> str:
    """Note something, and remind of it after a week."""
    noted = await ctx.step(note, "milk", undo=forget)
    await ctx.sleep(WEEK)
    return f"Remember: {noted}"


def decide(request: SampleRequest) -> SampleReply:
    """Call the tool once."""
    called = any(isinstance(each, ToolResultBlock) for each in request.messages[-1].content)
    return calls(text="Done.") if called else calls(("use", "remind", {}))


class Watched(ManualClock):
    """A clock that says when a turn waits for a call; within a round, its call waits itself."""

    def __init__(self) -> None:
        super().__init__()
        self.asleep = asyncio.Event()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        owner = getattr(callback, "__self__", None)
        if when - self.now() > DAY and isinstance(owner, asyncio.Event):
            self.asleep.set()
        return super().call_at(when, callback)


class Setting:
    def __init__(self, store: CallStore | None) -> None:
        self.clock = Watched()
        self.trees = MemoryTrees()
        self.store = store

    def agent(self) -> Agent:
        """Another agent, as another process has it."""
        model = MockModel(decide)
        kept = None if self.store is None else Durability(self.store, expire_after=DAY)
        return Agent(self.trees, model, tools=[remind], calls=kept, clock=self.clock)

    async def asleep(self, agent: Agent) -> tuple[Thread, asyncio.Task[Node]]:
        """A turn of ``agent`` whose tool sleeps."""
        thread = await agent.begin()
        turn = asyncio.ensure_future(agent.say(thread.id, "Remind me"))
        await self.is_asleep(turn)
        return thread, turn

    async def is_asleep(self, turn: asyncio.Task[Node]) -> None:
        """Wait until it is; or raise what the turn has failed with."""
        self.clock.asleep.clear()
        waiting = asyncio.ensure_future(self.clock.asleep.wait())
        await asyncio.wait({turn, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert not turn.done(), turn.result()


@pytest.mark.parametrize("stored", [False, True], ids=["alive", "stored"])
async def test_a_turn_goes_on_when_its_tool_has_slept(stored: bool) -> None:
    setting = Setting(Modelled() if stored else None)
    _, turn = await setting.asleep(setting.agent())
    setting.clock.advance(WEEK)
    assert (await turn).text == "Done."
    assert DONE == ["milk"]


async def test_a_call_does_not_expire_while_it_sleeps() -> None:
    store = Modelled()
    setting = Setting(store)
    _, turn = await setting.asleep(setting.agent())
    [record] = await store.calls(limit=10)
    assert record.deadline >= setting.clock.now() + WEEK + DAY
    setting.clock.advance(WEEK)
    await turn


async def test_another_process_goes_on_with_a_call_that_sleeps() -> None:
    setting = Setting(Modelled())
    first = setting.agent()
    thread, turn = await setting.asleep(first)
    first.suspend()
    turn.cancel()
    await asyncio.wait({turn})

    second = setting.agent()
    node = await second.cut_off(thread.id)
    assert node is not None
    turn = asyncio.ensure_future(second.use_tools(node))
    await setting.is_asleep(turn)  # once more, for what is left of the week
    setting.clock.advance(WEEK)
    results = (await setting.trees.path((await turn).id)).results
    assert [each.content[0].model_dump()["text"] for each in results.values()] == ["Remember: milk"]
    assert DONE == ["milk"]


@pytest.mark.parametrize("stored", [False, True], ids=["alive", "stored"])
async def test_a_call_that_is_stopped_in_its_sleep_is_undone(stored: bool) -> None:
    setting = Setting(Modelled() if stored else None)
    _, turn = await setting.asleep(setting.agent())
    turn.cancel()
    with suppress(asyncio.CancelledError):
        await turn
    assert DONE == ["milk", "not milk"]
