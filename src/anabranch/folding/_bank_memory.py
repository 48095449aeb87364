"""A :class:`~anabranch.memory.ReasoningBank` as the memory of branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from anabranch.folding._ports import InjectedItem
from anabranch.folding._records import Branch
from anabranch.memory import FinishedBranch, ReasoningBank

__all__ = ["BankMemory"]


class BankMemory:
    """What a bank has learned, for branches to begin with and to add to."""

    def __init__(self, bank: ReasoningBank) -> None:
        self._bank = bank

    async def recall(
        self, text: str, *, allowance: int, limit: int, min_confidence: float
    ) -> Sequence[InjectedItem]:
        """Return the memories that help most with ``text`` within ``allowance`` tokens."""
        found = await self._bank.recall(
            text, allowance=allowance, limit=limit, min_confidence=min_confidence
        )
        return [
            InjectedItem(
                id=item.id,
                title=item.title,
                content=f"{item.description}\n{item.content}",
                tokens=item.tokens,
            )
            for item in found.items
        ]

    async def queue(self, branch: Branch, transcript: str) -> bool:
        """Queue a closed branch to be distilled; return whether it was queued."""
        statuses: dict[str, Literal["completed", "failed", "timeout"]] = {
            "failed": "failed",
            "timeout": "timeout",
        }
        return await self._bank.queue(
            FinishedBranch(
                branch_id=branch.id,
                description=branch.description,
                prompt=branch.prompt,
                status=statuses.get(branch.status, "completed"),
                message=branch.result or branch.error or "",
                transcript=transcript,
                injected=branch.injected_memories,
            )
        )
