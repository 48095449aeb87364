"""Operations on branches, each with a ledger of its own in one transaction, and the events after it.

It also closes branches whose time is over: all views of a service share it, and with it when that was
last done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from anabranch._engine.clock import Clock
from anabranch.folding._branch_store import BranchRows, BranchStore
from anabranch.folding._errors import FoldingError, UnknownBranchError
from anabranch.folding._ledger import BranchEvent, Ledger
from anabranch.folding._records import Branch
from anabranch.folding._settings import FoldingSettings
from anabranch.folding._telemetry import record

__all__ = ["Ledgers"]

T = TypeVar("T")

logger: logging.Logger = logging.getLogger("anabranch.folding")

INTERVAL = 60.0
"""Seconds between two looks for branches whose time is over."""
BATCH = 100


class Ledgers:
    """The transactions of one service.

    Args:
        store: where branches are.
        settings: their limits.
        clock: gives the time.
        listener: receives each event once it is stored; what it raises is logged.
    """

    def __init__(
        self,
        store: BranchStore,
        settings: FoldingSettings,
        clock: Clock,
        listener: Callable[[BranchEvent], None] | None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._listener = listener
        self._looked_at = float("-inf")

    async def do(self, operation: Callable[[Ledger], T]) -> T:
        """Return what ``operation`` returns in one transaction, and report what it has done.

        A refusal is committed as well, and raised then: before it, time may have closed a branch.
        """
        now, settings = self._clock.now(), self._settings

        def work(rows: BranchRows) -> tuple[T | FoldingError, list[BranchEvent]]:
            ledger = Ledger(rows, settings, now)
            try:
                return operation(ledger), ledger.events
            except FoldingError as refusal:
                return refusal, ledger.events

        value, events = await self._store.transaction(work)
        for event in events:
            self._report(event)
        if isinstance(value, FoldingError):
            raise value
        return value

    async def look_for_overdue(self) -> None:
        """Close branches whose time is over, if this was not done just before."""
        if self._clock.now() - self._looked_at >= INTERVAL:
            await self.expire()

    async def expire(self) -> int:
        """Close all branches whose time is over, and delete old ones; return how many were closed."""
        closed, now = 0, self._clock.now()
        self._looked_at = now
        while overdue := await self._store.overdue(now, BATCH):
            for name in overdue:
                branch = await self.do(partial(_expired, branch_id=name))
                closed += branch is not None
        before = now - self._settings.delete_after_seconds
        while await self._store.prune(before, BATCH) == BATCH:
            pass
        return closed

    def _report(self, event: BranchEvent) -> None:
        record(event)
        if self._listener is None:
            return
        try:
            self._listener(event)
        except Exception:
            logger.exception("the listener failed at %s of branch %r", event.kind, event.branch.id)


def _expired(ledger: Ledger, branch_id: str) -> Branch | None:
    """Close a branch whose time is over; ``None`` if another one was faster."""
    try:
        branch = ledger.expire(branch_id)
    except UnknownBranchError:
        return None
    return branch if any(event.branch.id == branch_id for event in ledger.events) else None
