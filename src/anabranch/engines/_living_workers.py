"""Living and dead workers, as one worker sees them: a living worker holds an advisory lock.

A worker loses its lock with its connection, and all workers do when the server restarts. Each takes
its lock again at its next look. So a worker without a lock in a single look may be alive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager

from anabranch.engines._advisory_locks import AdvisoryLocks

LOOKS = 3
"""Consecutive looks at a free lock after which its owner counts as dead.

A living worker looks as often. It has taken its lock again by the second look, or by the third if another
worker looks at the same moment.
"""


class LivingWorkers:
    """Tells living workers from dead ones, by periodic looks.

    Args:
        locks: the locks of the workers.
        name: the name of the worker that looks.
    """

    def __init__(self, locks: AdvisoryLocks, name: str) -> None:
        self._locks = locks
        self._name = name
        self._free: Counter[str] = Counter()

    async def enter(self) -> bool:
        """Take this worker's lock; return false if another worker is testing that lock now.

        Each look begins with this call. After false, nothing is known of the others.

        Raises:
            StoreError: if the database cannot be reached.
        """
        if await self._locks.holds(self._name):
            return True
        self._free.clear()  # the others may have lost their locks as this worker did
        return await self._locks.try_lock(self._name)

    def look_at(self, others: Collection[str]) -> None:
        """Watch these workers, and forget all others."""
        self._free = Counter({each: self._free[each] for each in others})

    @asynccontextmanager
    async def is_dead(self, other: str) -> AsyncGenerator[bool]:
        """Yield whether a worker is dead by the last looks; inside the block, no other worker acts on it.

        Raises:
            StoreError: if the database cannot be reached.
        """
        if not await self._locks.try_lock(other):
            self._free[other] = 0
            yield False
            return
        try:
            self._free[other] += 1
            yield self._free[other] >= LOOKS
        finally:
            await self._locks.unlock(other)
