"""Runs each operation on branches in one transaction, and closes overdue branches of any owner.

Only this module reads or writes the store, so that no operation reaches another owner's records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from opentelemetry import metrics, trace

from anabranch._aio import Clock
from anabranch.folding._admission import HOST, Owner
from anabranch.folding._branch_store import Branch, BranchRows, BranchStore
from anabranch.folding._errors import FoldingError, UnknownBranchError
from anabranch.folding._ledger import BranchEvent, Ledger
from anabranch.folding._settings import FoldingSettings

_NANOSECONDS = 1_000_000_000


_meter, _tracer = metrics.get_meter("anabranch.folding"), trace.get_tracer("anabranch.folding")
_events = _meter.create_counter(
    "anabranch.folding.branches", unit="{branch}", description="Events of branches."
)
_tokens = _meter.create_histogram(
    "anabranch.folding.tokens", unit="{token}", description="Tokens that a branch has used."
)
_memories = _meter.create_counter(
    "anabranch.folding.memories", unit="{memory}", description="Memories with which branches began."
)
_duration = _meter.create_histogram(
    "anabranch.folding.duration", unit="s", description="Time from creation to end."
)


def record(event: BranchEvent) -> None:
    # No attribute of a metric names a branch or a session: their number grows without bound.
    branch = event.branch
    _events.add(1, {"event": event.kind, "depth": branch.depth})
    if event.kind == "created":
        _memories.add(len(branch.injected_memories))
    if branch.completed_at is None:
        return
    _tokens.record(branch.budget_used, {"status": branch.status})
    _duration.record(branch.completed_at - branch.created_at, {"status": branch.status})
    span = _tracer.start_span(
        "anabranch.folding.branch",
        start_time=int(branch.created_at * _NANOSECONDS),
        attributes={
            "anabranch.branch.id": branch.id,
            "anabranch.branch.depth": branch.depth,
            "anabranch.branch.status": branch.status,
            "anabranch.branch.budget": branch.budget_total,
            "anabranch.branch.tokens": branch.budget_used,
            "anabranch.branch.error": branch.error or "",
        },
    )
    span.end(end_time=int(branch.completed_at * _NANOSECONDS))


T = TypeVar("T")

logger: logging.Logger = logging.getLogger("anabranch.folding")

INTERVAL = 60.0
"""Seconds between two looks for overdue branches without a periodic job, and between two deletions."""
BATCH = 100


class Ledgers:
    """Runs the operations of one service; ``learn`` gets ended branches with their transcripts."""

    def __init__(
        self,
        store: BranchStore,
        settings: FoldingSettings,
        clock: Clock,
        listener: Callable[[BranchEvent], None] | None,
        learn: Callable[[Branch, str], Coroutine[Any, Any, bool]],
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._listener = listener
        self._learn = learn
        self._looked_at = float("-inf")
        self._pruned_at = float("-inf")
        self._learning = set[asyncio.Task[bool]]()

    async def do(
        self, owner: Owner, operation: Callable[[Ledger], T], transcript: str | None = None
    ) -> tuple[T, bool]:
        """Return the result of an ``operation`` on ``owner``'s records, and whether the memory learned.

        A refusal is committed before it is raised: the operation may have closed an overdue branch.
        """
        now, settings = self._clock.now(), self._settings

        def work(rows: BranchRows) -> tuple[T | FoldingError, list[BranchEvent]]:
            ledger = Ledger(rows, owner, settings, now)
            try:
                return operation(ledger), ledger.events
            except FoldingError as refusal:
                return refusal, ledger.events

        value, events = await self._store.transaction(work)
        learning: list[asyncio.Task[bool]] = []
        last_end = next((each for each in reversed(events) if not each.branch.is_open), None)
        for event in events:
            self._report(event)
            if not event.branch.is_open and event.branch.extract_memory:
                # The branch itself ends after its children.
                own = transcript if event is last_end else None
                learning.append(asyncio.ensure_future(self._learn(event.branch, own or "")))
                self._learning.add(learning[-1])
                learning[-1].add_done_callback(self._learning.discard)
        is_learned = False
        if learning and transcript is not None:
            await asyncio.wait(learning)
            is_learned = learning[-1].result()
        if isinstance(value, FoldingError):
            raise value
        return value, is_learned

    async def look_for_overdue(self) -> None:
        if self._clock.now() - self._looked_at >= INTERVAL:
            await self.expire()

    async def expire(self) -> list[Branch]:
        """Close overdue branches and delete old ones; the memory may learn from them afterwards."""
        closed: list[Branch] = []
        now = self._clock.now()
        self._looked_at = now
        while overdue := await self._store.overdue(now, BATCH):
            for name in overdue:
                branch, _ = await self.do(HOST, partial(_expired, branch_id=name))
                closed += [] if branch is None else [branch]
        if now - self._pruned_at >= INTERVAL:
            self._pruned_at = now
            before = now - self._settings.delete_after_seconds
            while await self._store.prune(before, BATCH) == BATCH:
                pass
        return closed

    async def all_learned(self) -> None:
        while learning := set(self._learning):
            await asyncio.wait(learning)

    def _report(self, event: BranchEvent) -> None:
        record(event)
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            logger.exception(
                "the listener raised an error for the event %r of branch %r",
                event.kind,
                event.branch.id,
            )


def _expired(ledger: Ledger, branch_id: str) -> Branch | None:
    """Close a branch whose time is over; return ``None`` if another worker has closed it."""
    try:
        branch = ledger.present(branch_id)
    except UnknownBranchError:
        return None
    return branch if any(event.branch.id == branch_id for event in ledger.events) else None
