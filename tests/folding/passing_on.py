"""A store of branches that passes everything on to another, and whose methods a test overrides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anabranch.folding import Branch, BranchRows, BranchStore
from anabranch.stores import open_branch_store

T = TypeVar("T")


class PassingOn:
    """A store in the memory of this process."""

    def __init__(self) -> None:
        self.store: BranchStore = open_branch_store("memory:")

    async def transaction(self, work: Callable[[BranchRows], T]) -> T:
        return await self.store.transaction(work)

    async def branch(self, branch_id: str) -> Branch | None:
        return await self.store.branch(branch_id)

    async def branches(self, session_id: str) -> list[Branch]:
        return await self.store.branches(session_id)

    async def overdue(self, now: float, limit: int) -> list[str]:
        return await self.store.overdue(now, limit)

    async def prune(self, before: float, limit: int) -> int:
        return await self.store.prune(before, limit)

    async def close(self) -> None:
        await self.store.close()
