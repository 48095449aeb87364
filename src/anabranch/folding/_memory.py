"""The ports of folding, and the memory behind one of them: injected into branches, it never fails a branch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from anabranch.folding._branch_store import Branch
from anabranch.folding._settings import FoldingSettings

Scrubber: TypeAlias = Callable[[str], Awaitable[str]]
"""Returns a text without its secrets. What it raises keeps the text from leaving its branch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedItem:
    """A memory that a branch begins with.

    Attributes:
        type: ``memory``.
        id: its id, by which feedback on it can be given.
        title: its title.
        content: its text.
        scope: with whom it is shared, such as ``person`` or ``org``; empty if that is not known.
        recorded: the day on which it was recorded, such as ``2026-11-29``; empty if that is not known.
        tokens: what it takes of the branch's budget, its title included.
    """

    type: str = "memory"
    id: str
    title: str
    content: str
    tokens: int
    scope: str = ""
    recorded: str = ""


class BranchMemory(Protocol):
    """Where branches find what others have learned, and leave what they have.

    One that has a method ``of``, as :class:`MemoryOfCallers`, is asked for the memory of each caller.
    One that has not is one memory for all.
    """

    async def recall(
        self, text: str, *, allowance: int, limit: int, min_confidence: float
    ) -> Sequence[InjectedItem]:
        """Return the memories that help most with ``text``, the best first.

        Together they are at most ``allowance`` tokens: one that is too large is skipped.
        """
        ...

    async def queue(self, branch: Branch, transcript: str) -> bool:
        """Queue a closed branch to be distilled; return whether it was queued.

        ``transcript`` is what is known of what was done in it, with whatever secrets that has.
        """
        ...


@runtime_checkable
class MemoryOfCallers(Protocol):
    """A memory in which each caller has their own."""

    def of(self, principal: str | None) -> BranchMemory:
        """Return the memory of a principal, or of everyone where callers are not distinguished."""
        ...


logger: logging.Logger = logging.getLogger("anabranch.folding")

T = TypeVar("T")

LEARNING = 30.0
"""Seconds that a memory has to queue a branch, whose transcript it may have to search for secrets."""

HANGING = 20
"""How many tasks of a memory may be left behind at a time."""


class Injection:
    """A memory as branches use it.

    Args:
        settings: say how much a branch may begin with, and how long it waits for that.
        memory: has it; ``None`` has nothing, and learns nothing.
    """

    def __init__(
        self, settings: FoldingSettings, memory: BranchMemory | MemoryOfCallers | None
    ) -> None:
        self._settings = settings
        self._memory = memory
        self._principal: str | None = None
        self._hanging: set[asyncio.Task[Any]] = set()

    def of(self, principal: str | None) -> Injection:
        """Return the memory for the branches of one caller, where callers have their own."""
        view = copy(self)
        view._principal = principal or None  # noqa: SLF001 - of this class
        return view

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
            asking = self._own(self._memory).recall(
                f"{branch.description} {branch.prompt}",
                allowance=allowance,
                limit=settings.memory_max_items,
                min_confidence=settings.memory_min_confidence,
            )
            items = await self._in_time(asking, settings.memory_timeout_seconds)
        except Exception:
            logger.exception("branch %r begins without memories", branch.id)
            return ()
        return _within(items, allowance, settings.memory_max_items)

    async def queue(self, branch: Branch, transcript: str) -> bool:
        """Let the memory learn from a branch; return whether it will."""
        if self._memory is None:
            return False
        try:
            asking = self._own(self._memory).queue(branch, transcript or branch.partial or "")
            return await self._in_time(asking, LEARNING)
        except Exception:
            logger.exception("branch %r was not queued for distillation", branch.id)
            return False

    def _own(self, memory: BranchMemory | MemoryOfCallers) -> BranchMemory:
        if len(self._hanging) >= HANGING:
            raise TimeoutError(f"{HANGING} earlier requests to the memory hang")
        return memory.of(self._principal) if isinstance(memory, MemoryOfCallers) else memory

    async def _in_time(self, asking: Coroutine[Any, Any, T], seconds: float) -> T:
        """Return what the memory answers.

        Raises:
            TimeoutError: it does not answer in time.
            Exception: what it raises.
        """
        task = asyncio.ensure_future(asking)
        try:
            await asyncio.wait({task}, timeout=seconds)
            if task.done():
                return task.result()
        finally:
            if not task.done():
                task.cancel()
                self._hanging.add(task)
                task.add_done_callback(self._left)
        raise TimeoutError(f"the memory has not answered within {seconds:g} s")

    def _left(self, task: asyncio.Task[Any]) -> None:
        self._hanging.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report it as forgotten


def _within(items: Sequence[InjectedItem], allowance: int, limit: int) -> Sequence[InjectedItem]:
    """Return the items that fit, in order, whatever a memory returns."""
    fitting: list[InjectedItem] = []
    for item in items:
        if item.tokens <= allowance and len(fitting) < limit:
            allowance -= item.tokens
            fitting.append(item)
    return fitting
