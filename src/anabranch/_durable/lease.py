"""One worker at a time runs a call: the lease on it, kept for as long as the work takes.

Owns taking, prolonging and giving back. What is done meanwhile, and what it means that a lease is
lost, is the holder's.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import Self

from anabranch._durable.store import CallRecord, CallStore, OpenedRound, RoundRecord
from anabranch._engine import run_shielded
from anabranch._engine.clock import Clock, pause
from anabranch.errors import StoreError

__all__ = ["Lease"]

logger: logging.Logger = logging.getLogger("anabranch.durable")

LOOK_AGAIN, AT_MOST = 0.05, 1.0
"""Seconds until the second try for a call that another worker has; later tries take their time."""


class Lease:
    """The right to run the call ``line``, for one piece of work; given back when it is left.

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
        self._owner = f"{worker}.{secrets.token_hex(8)}"  # a forked process has its parent's name
        self._seconds = seconds
        self._until = 0.0
        self._may_be_held = False
        self._keeping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await run_shielded(self._give_back())

    async def open_round(self, number: int, new: CallRecord | None = None) -> OpenedRound:
        """Wait until the lease is free, take it and keep it; return what is known of the round.

        A round that has ended needs no lease: it is told at once, and nothing is taken. ``new`` is
        what the call begins as if it is unknown.
        """
        wait = LOOK_AGAIN
        while True:
            now = self._clock.now()
            until = now + self._seconds
            self._may_be_held = True  # also if the store fails: its answer may have been lost
            opened = await self._store.open_round(
                self._line, number, self._owner, now, until, new=new
            )
            if opened is not None and opened.ended is None:
                self._keep_until(until)
                return opened
            self._may_be_held = False
            if opened is not None:
                return opened
            await pause(self._clock, wait)
            wait = min(2 * wait, AT_MOST)

    async def take(self) -> bool:
        """Take the lease if it is free, and keep it from now on; false if another holds it."""
        now = self._clock.now()
        until = now + self._seconds
        self._may_be_held = True
        if not await self._store.lease(self._line, self._owner, now, until):
            self._may_be_held = False
            return False
        self._keep_until(until)
        return True

    async def end_round(
        self, record: RoundRecord, *, deadline: float, status: str = "open"
    ) -> RoundRecord:
        """Write how the round ended, and give the lease back with it; return what is written."""
        await self._stop_keeping()
        ended = await self._store.end_round(
            self._line, record, deadline=deadline, status=status, release=self._owner
        )
        self._may_be_held = False
        return ended

    def check(self) -> None:
        """Return if the lease is held still.

        Raises:
            StoreError: it has run out, because this process stood still or the store did not
                answer; another worker may run the call by now.
        """
        if self._clock.now() >= self._until:
            raise StoreError(f"The lease on call {self._line!r} has run out. Try again.")

    def _keep_until(self, until: float) -> None:
        self._until = until
        self._keeping = asyncio.ensure_future(self._keep())

    async def _keep(self) -> None:
        while True:
            await pause(self._clock, self._seconds / 3)
            now = self._clock.now()
            until = now + self._seconds
            try:
                if not await self._store.lease(self._line, self._owner, now, until):
                    logger.error("call %r: another worker has taken it over", self._line)
                    return
            except StoreError as error:
                logger.warning("call %r: its lease was not prolonged: %s", self._line, error)
            else:
                self._until = until

    async def _stop_keeping(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
            if not self._keeping.cancelled() and (problem := self._keeping.exception()):
                logger.error("call %r: its lease was not kept", self._line, exc_info=problem)

    async def _give_back(self) -> None:
        await self._stop_keeping()
        if not self._may_be_held:
            return
        try:
            await self._store.release(self._line, self._owner)
        except StoreError as error:  # then it runs out by itself
            logger.warning("call %r: its lease could not be given back: %s", self._line, error)
