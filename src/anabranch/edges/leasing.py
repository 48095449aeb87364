"""One worker at a time runs a call: the lease on it, kept for as long as the work takes.

Owns taking, prolonging and giving back. What is done meanwhile, and what it means that a lease is
lost, is the holder's.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import count
from typing import Self

from anabranch.call import to_the_end
from anabranch.call.store import CallStore, StoreError
from anabranch.ports import Clock, pause

__all__ = ["Lease"]

logger: logging.Logger = logging.getLogger("anabranch.edges")

LOOK_AGAIN = 0.05
"""Seconds between two tries for a call that another worker has."""

_numbers = count(1)


class Lease:
    """The right to run the call ``line``, for one piece of work.

    Args:
        store: where it is kept.
        line: the call's name there.
        clock: time, the same for all workers.
        worker: this process; unique among all.
        seconds: for which the lease outlives a worker that has died.
    """

    def __init__(
        self, store: CallStore, line: str, clock: Clock, *, worker: str, seconds: float
    ) -> None:
        self._store = store
        self._line = line
        self._clock = clock
        self._owner = f"{worker}.{next(_numbers)}"
        self._seconds = seconds
        self._until = 0.0
        self._keeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        while not await self.take():
            await pause(self._clock, LOOK_AGAIN)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await to_the_end(self.give_back())

    async def take(self) -> bool:
        """Take the lease if it is free, and keep it from now on; false if another holds it."""
        try:
            if not await self._prolong():
                return False
        except BaseException:  # it may be taken nevertheless, and nobody would give it back
            await to_the_end(self.give_back())
            raise
        self._keeping = asyncio.ensure_future(self._keep())
        return True

    async def give_back(self) -> None:
        """Let others have it."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        try:
            await self._store.release(self._line, self._owner)
        except StoreError as error:  # then it runs out by itself
            logger.warning("call %r: its lease could not be given back: %s", self._line, error)

    def check(self) -> None:
        """Return if the lease is held still.

        Raises:
            StoreError: it has run out, because this process stood still or the store did not
                answer; another worker may run the call by now.
        """
        if self._clock.now() >= self._until:
            raise StoreError(f"The lease on call {self._line!r} has run out. Try again.")

    async def _prolong(self) -> bool:
        now = self._clock.now()
        until = now + self._seconds
        if not await self._store.lease(self._line, self._owner, now, until):
            return False
        self._until = until
        return True

    async def _keep(self) -> None:
        while True:
            await pause(self._clock, self._seconds / 3)
            try:
                if not await self._prolong():
                    logger.error("call %r: another worker has taken it over", self._line)
                    return
            except StoreError as error:
                logger.warning("call %r: its lease was not prolonged: %s", self._line, error)
