"""What is looked for from time to time is called for: one failure is not that of the others."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from anabranch._durable import TurnState
from anabranch.chat._web.conversations import Conversations
from anabranch.chat._web.thread_lease import WAITS
from anabranch.engines import InProcessEngine, Wake
from anabranch.errors import StoreError
from anabranch.messages import ToolUseBlock
from anabranch.stores import open_run_events, open_stores, open_tree_store
from anabranch.testing import ManualClock
from anabranch.tool import Tool
from anabranch.tree import Thread
from tests.chat import web
from tests.suites.turn_samples import put_turn, running
from tests.telemetry import Collected


class Refusing(InProcessEngine):
    """An engine without workers, which refuses the wakes of some calls, and notes the others."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: set[str] = set()
        self.wakes: list[Wake] = []
        self.cancelled: list[str] = []

    async def wake(self, wake: Wake) -> None:
        if wake.call in self.refused:
            raise StoreError(f"The engine takes nothing of {wake.call}.")
        self.wakes.append(wake)

    async def cancel(self, call: str) -> None:
        self.cancelled.append(call)


class Desk:
    """A process whose runs a worker takes when a test has it do so."""

    def __init__(self, url: str, tool: Tool[Any], version: str) -> None:
        self.engine = Refusing()
        self.clock = ManualClock()
        calls, self._trees = open_stores(url)
        self.events = open_run_events(url)
        self.process = Conversations(
            self._trees,
            web.model(),
            [tool],
            calls=calls,
            engine=self.engine,
            clock=self.clock,
            code_version=version,
        )

    async def begin(self, *threads: str) -> None:
        for name in threads:
            conversation = await self.process.begin(Thread(name, 0.0))
            assert conversation is not None
            await conversation.say("hello", "r1")

    async def look(self) -> list[Wake]:
        """Look for runs that have waited for long; return the wakes that this has given."""
        self.clock.advance(WAITS + 1.0)
        self.engine.wakes.clear()
        await self.process.upkeep.call_workers()
        return list(self.engine.wakes)

    async def close(self) -> None:
        await self.process.close()
        await self.events.close()
        await self._trees.close()


@asynccontextmanager
async def at_desk(
    url: str, tool: Tool[Any] = web.reserve, version: str = "1"
) -> AsyncGenerator[Desk]:
    desk = Desk(url, tool, version)
    try:
        yield desk
    finally:
        await desk.close()


async def test_a_run_that_no_worker_can_be_called_for_does_not_hold_up_the_others(url: str) -> None:
    async with at_desk(url) as desk:
        await desk.begin("a", "refused", "b")
        desk.engine.refused.add("refused")
        for _ in range(2):
            with pytest.raises(
                StoreError, match="Could not call a worker for 1 runs: The engine takes"
            ):
                await desk.look()
            assert {wake.call for wake in desk.engine.wakes} == {"a", "b"}
        desk.engine.refused.clear()
        assert {wake.call for wake in await desk.look()} == {"a", "b", "refused"}


async def test_a_tool_that_no_worker_can_be_called_for_does_not_hold_up_the_others(
    url: str,
) -> None:
    async with at_desk(url) as desk:
        agent = desk.process.agent
        use = ToolUseBlock(id="use", name="reserve", input={})
        for name in ("a", "refused", "b"):
            await desk.process.begin(Thread(name, 0.0))
            said = agent.dependencies.node(name, None, "user", "reserve")
            await agent.add([said, agent.dependencies.node(name, said.id, "assistant", [use])])
        desk.engine.refused.add("refused")
        with pytest.raises(StoreError, match="Could not call a worker for 1 runs"):
            await desk.process.upkeep.resume()
        assert {wake.call for wake in desk.engine.wakes} == {"a", "b"}


async def test_a_run_that_waits_for_a_version_is_called_for_by_one_wake(url: str) -> None:
    """And nothing of its thread is cancelled: a worker of that version may have begun with it."""
    async with at_desk(url) as desk:
        await desk.begin("t1")
        turn = await desk.events.turn("t1")
        assert turn is not None
        assert await desk.events.move("t1", turn, replace(turn, version="other"))
        [first], [again] = await desk.look(), await desk.look()
        assert (first.call, first.version) == ("t1", "other")
        assert again == first
        assert desk.engine.cancelled == []


async def test_the_backlog_is_measured(collected: Collected) -> None:
    trees = open_tree_store("memory:")
    events = open_run_events(trees)
    works = running("r", "worker")
    waits = replace(works, state=TurnState.READY, owner="")
    for thread, turn in {"t1": waits, "t2": replace(waits, attempt=3), "t3": works}.items():
        await put_turn(events, thread, turn)
    await Conversations(trees, web.model()).upkeep.report_backlog()
    assert collected.metric("backlog.waiting") == {"": 2}
    assert collected.metric("backlog.running") == {"": 1}
    await trees.close()
