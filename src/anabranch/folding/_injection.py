"""What a branch begins with, and what is learned from it: the memory, which never fails a branch."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from anabranch.folding._ports import BranchMemory, InjectedItem
from anabranch.folding._records import Branch
from anabranch.folding._settings import FoldingSettings

__all__ = ["Injection"]

logger: logging.Logger = logging.getLogger("anabranch.folding")


class Injection:
    """A memory as branches use it.

    Args:
        settings: say how much a branch may begin with.
        memory: has it; ``None`` has nothing, and learns nothing.
    """

    def __init__(self, settings: FoldingSettings, memory: BranchMemory | None) -> None:
        self._settings = settings
        self._memory = memory

    @property
    def is_possible(self) -> bool:
        """Whether there is a memory."""
        return self._memory is not None

    async def recall(self, branch: Branch, tokens: int) -> Sequence[InjectedItem]:
        """Return what the memory has for a branch whose texts have ``tokens``."""
        settings = self._settings
        share = int(branch.budget_total * settings.injection_budget_ratio)
        allowance = min(share, branch.budget_total - tokens - 1)
        if self._memory is None or allowance <= 0:
            return ()
        try:
            items = await self._memory.recall(
                f"{branch.description} {branch.prompt}",
                allowance=allowance,
                limit=settings.memory_max_items,
                min_confidence=settings.memory_min_confidence,
            )
        except Exception:
            logger.exception("branch %r begins without memories", branch.id)
            return ()
        return _within(items, allowance, settings.memory_max_items)

    async def queue(self, branch: Branch, transcript: str) -> bool:
        """Let the memory learn from a branch; return whether it will."""
        if self._memory is None:
            return False
        try:
            return await self._memory.queue(branch, transcript or branch.partial or "")
        except Exception:
            logger.exception("branch %r was not queued for distillation", branch.id)
            return False


def _within(items: Sequence[InjectedItem], allowance: int, limit: int) -> Sequence[InjectedItem]:
    """Return the items that fit, in order, whatever a memory returns."""
    fitting: list[InjectedItem] = []
    for item in items:
        if item.tokens <= allowance and len(fitting) < limit:
            allowance -= item.tokens
            fitting.append(item)
    return fitting
