"""Lets branches use the memories of :mod:`anabranch.memory`, separately for each caller."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from anabranch.folding._branch_store import Branch
from anabranch.folding._memory import InjectedItem
from anabranch.memory import Banks, FinishedBranch, ReasoningBank, bank_of


class BankMemory:
    """Memories of banks, which branches begin with and add to.

    Args:
        banks: the memories of all callers.
        principal: the caller whose branches this memory serves; by default, callers who are not
            distinguished.
    """

    def __init__(self, banks: Banks, principal: str | None = None) -> None:
        self._banks = banks
        self._principal = principal

    def of(self, principal: str | None) -> BankMemory:
        """Return the memory for the branches of one caller."""
        return BankMemory(self._banks, principal)

    async def recall(
        self, text: str, *, allowance: int, limit: int, min_confidence: float
    ) -> Sequence[InjectedItem]:
        """Return the most helpful memories for ``text`` within ``allowance`` tokens.

        This method sets no time limit; the settings of the branches do.
        """
        found = await self._bank().recall(
            text,
            allowance=allowance,
            limit=limit,
            min_confidence=min_confidence,
            timeout=math.inf,
        )
        return [
            InjectedItem(
                id=item.id,
                title=item.title,
                content=f"{item.description}\n{item.content}",
                tokens=item.tokens,
                scope=item.scope,
                recorded=item.recorded,
            )
            for item in found.items
        ]

    async def queue(self, branch: Branch, transcript: str) -> bool:
        """Queue a closed branch to be distilled; return whether it was queued."""
        statuses: dict[str, Literal["completed", "failed", "timeout"]] = {
            "failed": "failed",
            "timeout": "timeout",
        }
        return await self._bank().queue(
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

    def _bank(self) -> ReasoningBank:
        return bank_of(self._banks, self._principal)
