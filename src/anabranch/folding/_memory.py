"""The memory of branches; a failing or slow memory never fails a branch."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Coroutine, Sequence
from copy import copy
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from anabranch.folding._branch_store import Branch
from anabranch.folding._settings import FoldingSettings
from anabranch.memory import Banks, FinishedBranch, ReasoningBank, bank_of
from anabranch.messages import Shape


class InjectedItem(Shape):
    """A note from earlier work that a new branch gets: data to consider, not an instruction.

    ``scope`` names the callers who share the note, such as ``user`` or ``org``. ``recorded`` is the
    day of recording, such as ``2026-11-29``. Both are empty if unknown. ``tokens`` counts the note
    and its title in the branch's budget.
    """

    type: str = "memory"
    id: str
    title: str
    content: str
    scope: str = ""
    recorded: str = ""
    tokens: int


class BranchMemory(Protocol):
    """A memory that gives new branches notes from earlier work, and learns from ended branches.

    A :class:`MemoryOfCallers` has a separate memory for each caller; any other memory serves all
    callers together.
    """

    async def recall(
        self, text: str, *, allowance: int, limit: int, min_confidence: float
    ) -> Sequence[InjectedItem]:
        """Return the notes that are most helpful for ``text``, the best first.

        The notes together have at most ``allowance`` tokens; a note that does not fit is left out.
        """
        ...

    async def queue(self, branch: Branch, transcript: str) -> bool:
        """Queue a closed branch for learning; return whether the branch was queued.

        ``transcript`` is the branch's conversation, possibly with secrets.
        """
        ...


@runtime_checkable
class MemoryOfCallers(Protocol):
    """A source of separate memories for each caller."""

    def of(self, principal: str | None) -> BranchMemory:
        """Return the memory of one caller; without a ``principal``, callers share one memory."""
        ...


logger: logging.Logger = logging.getLogger("anabranch.folding")

T = TypeVar("T")

LEARNING = 30.0
"""Maximum seconds for queueing a branch, including the search of its transcript for secrets."""

HANGING = 20
"""Maximum abandoned tasks of a memory at a time; with more, the memory is not asked.

A memory may be any object, so a request to it is a task, which is left behind when it is too slow.
"""


class Injection:
    def __init__(
        self, settings: FoldingSettings, memory: BranchMemory | MemoryOfCallers | None
    ) -> None:
        self._settings = settings
        self._memory = memory
        self._principal: str | None = None
        self._hanging: set[asyncio.Task[Any]] = set()

    def of(self, principal: str | None) -> Injection:
        view = copy(self)
        view._principal = principal or None  # noqa: SLF001 - of this class
        return view

    @property
    def is_possible(self) -> bool:
        return self._memory is not None

    async def recall(self, branch: Branch, tokens: int) -> Sequence[InjectedItem]:
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
            task.exception()  # retrieve it, so that asyncio does not report it


def _within(items: Sequence[InjectedItem], allowance: int, limit: int) -> Sequence[InjectedItem]:
    fitting: list[InjectedItem] = []  # a memory may return too many
    for item in items:
        if item.tokens <= allowance and len(fitting) < limit:
            allowance -= item.tokens
            fitting.append(item)
    return fitting


class BankMemory:
    """Gives branches the notes of :mod:`anabranch.memory`, and queues ended branches for learning.

    Args:
        banks: the memories of all callers.
        principal: the caller whose branches this memory serves; by default, all callers together.
    """

    def __init__(self, banks: Banks, principal: str | None = None) -> None:
        self._banks = banks
        self._principal = principal

    def of(self, principal: str | None) -> BankMemory:
        """Return the memory for one caller's branches."""
        return BankMemory(self._banks, principal)

    async def recall(
        self, text: str, *, allowance: int, limit: int, min_confidence: float
    ) -> Sequence[InjectedItem]:
        """Return the notes most helpful for ``text``, which take at most ``allowance`` tokens.

        The method has no time limit; :class:`FoldingSettings` has the limit.
        """
        found = await self._bank().recall(
            text, allowance=allowance, limit=limit, min_confidence=min_confidence, timeout=math.inf
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
        """Queue a closed branch for distillation; return whether the branch was queued."""
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
