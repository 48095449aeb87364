"""Which workers live, as one of them sees it: who lives holds the advisory lock of their name.

A lock is lost with its connection, those of all workers when the server restarts, and its owner takes
it again at its next look. So who is found without one in a single look may live.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager

from anabranch.engines._advisory_locks import AdvisoryLocks

LOOKS = 3
"""In how many looks, one after another, a lock is free whose owner is dead.

Who lives looks as often, and has taken it again by the second, or by the third if another looks at it
in that very moment.
"""


class LivingWorkers:
    """Tells workers that live from those that are dead, in looks from time to time.

    Args:
        locks: has the locks.
        name: the worker that looks.
    """

    def __init__(self, locks: AdvisoryLocks, name: str) -> None:
        self._locks = locks
        self._name = name
        self._free: Counter[str] = Counter()

    async def enter(self) -> bool:
        """Be one of those that live; false if another is just looking whether this one does.

        This comes first in each look. Where it is false, nothing is known of the others.

        Raises:
            StoreError: if the database cannot be reached.
        """
        if await self._locks.holds(self._name):
            return True
        self._free.clear()  # they may have lost theirs as this one did
        return await self._locks.try_lock(self._name)

    def look_at(self, others: Collection[str]) -> None:
        """Look at these; what was known of all others is forgotten."""
        self._free = Counter({each: self._free[each] for each in others})

    @asynccontextmanager
    async def is_dead(self, other: str) -> AsyncGenerator[bool]:
        """Return whether one of them is dead, as the last looks say; inside the block, only this worker acts on it.

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
