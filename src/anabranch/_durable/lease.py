"""The lease on a call: one worker at a time runs it, and the lease is renewed while it does.

The holder decides what is done under a lease, and what follows when it is lost.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

from anabranch._durable.store import CallRecord, CallStore, OpenedRound, RoundRecord
from anabranch._engine.clock import Clock, pause
from anabranch._shielded import run_shielded
from anabranch.errors import StoreError, UnknownCallError

__all__ = ["Lease"]

logger: logging.Logger = logging.getLogger("anabranch.durable")

T = TypeVar("T")

FIRST_RETRY, LONGEST_RETRY = 0.05, 1.0
"""Seconds until the store is asked again: for a call that another worker runs, or after a failure.

They double up to the longest.
"""


class Lease:
    """The right to run the call ``line``, for one piece of work; released when the context is left.

    Args:
        store: where the call is.
        line: the call's name there.
        clock: the time, the same for all workers.
        worker: this process; no other worker has its name.
        seconds: until the lease of a worker that has died runs out.
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
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await run_shielded(self._release())

    async def open_round(self, number: int, new: CallRecord | None = None) -> OpenedRound:
        """Wait until the lease is free and take it; return what is recorded of the round.

        The lease is renewed from then on. A round that has ended needs none: it is returned at
        once, and nothing is taken. ``new`` is what the call begins as if the store has none.

        Raises:
            UnknownCallError: the store does not have the call, and there is no ``new``.
            StoreError: the store failed.
        """
        wait = FIRST_RETRY
        while True:
            now = self._clock.now()
            until = now + self._seconds
            self._may_be_held = True  # also if the store fails: its answer may have been lost
            opened = await self._store.open_round(
                self._line, number, self._owner, now, until, new=new
            )
            if opened is not None and opened.ended is None:
                self._renew_from(until)
                return opened
            self._may_be_held = False
            if opened is not None:
                return opened
            await pause(self._clock, wait)
            wait = min(2 * wait, LONGEST_RETRY)

    async def take(self) -> bool:
        """Take the lease if it is free, and renew it from then on; false if another holds it.

        Raises:
            StoreError: the store failed, or does not have the call.
        """
        now = self._clock.now()
        until = now + self._seconds
        self._may_be_held = True
        if not await self._store.lease(self._line, self._owner, now, until):
            self._may_be_held = False
            return False
        self._renew_from(until)
        return True

    async def end_round(
        self, record: RoundRecord, *, deadline: float, status: str = "open"
    ) -> RoundRecord:
        """Write how the round ended and release the lease, as one; return what is written.

        Raises:
            StoreError: the store failed.
        """
        await self._stop_renewing()
        ended = await self._store.end_round(
            self._line, record, deadline=deadline, status=status, release=self._owner
        )
        self._may_be_held = False
        return ended

    async def while_held(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what ``work`` returns; try it again while the store fails and the lease is held.

        Raises:
            StoreError: the store failed until the lease had run out, or for as long as a lease
                lasts; or it does not have the call.
        """
        wait, last = FIRST_RETRY, self._clock.now() + self._seconds
        while True:
            try:
                return await work()
            except UnknownCallError:
                raise
            except StoreError as error:
                if wait == FIRST_RETRY:
                    logger.warning("call %r: the store failed: %s; retrying", self._line, error)
                await pause(self._clock, wait)
                if self._clock.now() >= min(self._until, last):
                    raise
            wait = min(2 * wait, LONGEST_RETRY)

    def check(self) -> None:
        """Check that the lease is still held.

        Raises:
            StoreError: it has run out, because this process was suspended or the store did not
                answer; another worker may run the call by now.
        """
        if self._clock.now() >= self._until:
            raise StoreError(f"The lease on call {self._line!r} has run out. Try again.")

    def _renew_from(self, until: float) -> None:
        self._until = until
        self._renewing = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        while True:
            await pause(self._clock, self._seconds / 3)
            now = self._clock.now()
            until = now + self._seconds
            try:
                if not await self._store.lease(self._line, self._owner, now, until):
                    logger.error("call %r: another worker has taken it over", self._line)
                    return
            except StoreError as error:
                logger.warning("call %r: its lease was not renewed: %s", self._line, error)
            else:
                self._until = until

    async def _stop_renewing(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
            if not self._renewing.cancelled() and (problem := self._renewing.exception()):
                logger.error("call %r: its lease was not renewed", self._line, exc_info=problem)

    async def _release(self) -> None:
        await self._stop_renewing()
        if not self._may_be_held:
            return
        try:
            await self._store.release(self._line, self._owner)
        except StoreError as error:  # then it runs out by itself
            logger.warning("call %r: its lease could not be released: %s", self._line, error)
