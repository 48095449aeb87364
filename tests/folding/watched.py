"""Branches whose ends and writes a test observes."""

import asyncio
from typing import Any

from anabranch.folding import BranchEvent, BranchService
from anabranch.testing import ManualClock
from tests.folding.hosts import TASK
from tests.folding.passing_on import PassingOn


class Watched:
    """Branches whose ends a test waits for."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ended = asyncio.Event()
        self.kinds: list[str] = []
        self.store: Any = Counting()
        self.service = BranchService(self.store, clock=self.clock, listener=self.heard)

    def heard(self, event: BranchEvent) -> None:
        self.kinds.append(event.kind)
        if event.kind != "created":
            self.ended.set()

    async def ends(self) -> None:
        """Return when a branch of one second was closed without a request for it."""
        await self.service.create(**TASK, timeout_seconds=1)
        async with asyncio.timeout(20), self.clock.running():
            await self.ended.wait()
        assert self.kinds == ["created", "timeout"]


class Counting(PassingOn):
    """Counts how often old branches were deleted: each deletion is a write."""

    def __init__(self) -> None:
        super().__init__()
        self.pruned = 0

    async def prune(self, before: float, limit: int) -> int:
        self.pruned += 1
        return await self.store.prune(before, limit)
