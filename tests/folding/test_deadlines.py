"""Deadlines hold in a process that is idle: whoever lets branches be opened closes them in time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from anabranch.agents import Agent, Folding
from anabranch.chat import make_chat_app
from anabranch.cli import _server_recipe
from anabranch.cli._combined_server import Persistence
from anabranch.cli._server_recipe import ServerRecipe
from anabranch.engines import Engine, InProcessEngine
from anabranch.folding import BranchEvent, BranchService
from anabranch.folding._memory_store import MemoryBranches
from anabranch.messages import SampleRequest
from anabranch.stores import open_tree_store
from anabranch.testing import ManualClock, MockModel

PROMPT: dict[str, Any] = {"description": "Find it", "prompt": "Look everywhere."}


def quiet(request: SampleRequest) -> str:
    return "Nothing."


class Watched:
    """Branches whose ends a test waits for."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ended = asyncio.Event()
        self.kinds: list[str] = []
        self.store = Counting()
        self.service = BranchService(self.store, clock=self.clock, listener=self.heard)

    def heard(self, event: BranchEvent) -> None:
        self.kinds.append(event.kind)
        if event.kind != "created":
            self.ended.set()

    async def ends(self) -> None:
        """Return when a branch of one second was closed, which nothing looks at."""
        await self.service.create(**PROMPT, timeout_seconds=1)
        async with asyncio.timeout(20), self.clock.running():
            await self.ended.wait()
        assert self.kinds == ["created", "timeout"]


class Counting(MemoryBranches):
    """Counts how often old branches were deleted, which is a write."""

    def __init__(self) -> None:
        super().__init__()
        self.pruned = 0

    async def prune(self, before: float, limit: int) -> int:
        self.pruned += 1
        return await super().prune(before, limit)


@pytest.mark.parametrize("works", [True, False], ids=["works", "leaves runs to workers"])
async def test_an_application_closes_branches_in_time(works: bool) -> None:
    watched = Watched()
    engine: Engine | None = None if works else InProcessEngine(watched.clock)
    store = open_tree_store("memory:")
    app = make_chat_app(
        store,
        MockModel(quiet),
        [Folding(watched.service)],
        clock=watched.clock,
        engine=engine,
        concurrency=10 if works else None,
        closes_store=True,
    )
    async with app.router.lifespan_context(app):
        await watched.ends()


async def test_a_server_of_folding_alone_closes_branches_in_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    watched = Watched()

    def opened(*given: Any, **options: Any) -> BranchService:
        return watched.service

    monkeypatch.setattr(_server_recipe, "open_branches", opened)
    made = ServerRecipe((), None, ("k" * 32,), Persistence(None), folding=True).make_server()
    await watched.service.create(**PROMPT, timeout_seconds=1)
    watched.clock.advance(2)
    async with asyncio.timeout(20), made.around:
        await watched.ended.wait()
    assert watched.kinds == ["created", "timeout"]


async def test_to_look_for_deadlines_costs_no_write() -> None:
    """Excludes a transaction that writes, every second, in a store in which nothing happens."""
    watched = Watched()
    for _ in range(30):
        await watched.service.expire()
        watched.clock.advance(1)
    assert watched.store.pruned == 1
    watched.clock.advance(60)
    await watched.service.expire()
    assert watched.store.pruned == 2


async def test_only_what_has_deadlines_is_tended() -> None:
    plain = Agent(open_tree_store("memory:"), MockModel(quiet))
    jobs: Iterable[object] = plain.tools.tended(InProcessEngine())
    assert list(jobs) == []
