"""Leases: one worker at a time runs something, and its lease is renewed while it does.

The holder decides what is done under a lease, and what follows when it is lost. The lease on a call
is also taken with the opening of a round, and released with its end. Its holder may be suspended
after any check that it makes here: what no other may write, the store writes for its owner only.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, Self, TypeVar

from anabranch._durable.store import CallRecord, CallStore, OpenedRound, RoundRecord
from anabranch._engine.clock import Clock, pause
from anabranch._shielded import run_shielded
from anabranch.errors import StoreError, UnknownCallError

__all__ = ["Lease", "Leases", "RenewedLease"]

logger: logging.Logger = logging.getLogger("anabranch.durable")

T = TypeVar("T")

FIRST_RETRY, LONGEST_RETRY = 0.05, 1.0
"""Seconds until the store is asked again: for a call that another worker runs, or after a failure.

They double up to the longest.
"""


class Leases(Protocol):
    """Where leases are stored, each under the name of what is run."""

    async def lease(self, name: str, owner: str, now: float, until: float, /) -> bool:
        """Take, or renew, a lease; false if another owner holds it."""
        ...

    async def release(self, name: str, owner: str, /) -> None:
        """Release a lease; nothing happens if ``owner`` does not hold it."""
        ...


class RenewedLease:
    """The right to run something, for one piece of work; released when the context is left.

    Args:
        store: where leases are stored.
        name: what is run.
        clock: the time, the same for all workers.
        worker: this process; no other worker has its name.
        seconds: until the lease of a worker that has died runs out.
        kind: what it is, for the log.
        on_lost: called when another worker has taken it over.

    Attributes:
        owner: who holds it, as the store knows them.
        is_lost: whether another worker has taken it over, or has to.
    """

    def __init__(
        self,
        store: Leases,
        name: str,
        clock: Clock,
        *,
        worker: str,
        seconds: float,
        kind: str,
        on_lost: Callable[[], object] = lambda: None,
    ) -> None:
        self.owner: str = f"{worker}.{secrets.token_hex(8)}"  # a fork has its parent's name
        self._leases = store
        self._name = name
        self._what = f"{kind} {name!r}"
        self._clock = clock
        self._seconds = seconds
        self._on_lost = on_lost
        self.is_lost = False
        self._until = 0.0
        self._may_be_held = False
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await run_shielded(self._release())

    async def take(self) -> bool:
        """Take the lease if it is free, and renew it from then on; false if another holds it.

        Raises:
            StoreError: the store failed, or does not have the call.
        """
        now = self._clock.now()
        return await self.take_by(partial(self._leases.lease, self._name, self.owner, now))

    async def take_by(self, ask: Callable[[float], Awaitable[T]]) -> T:
        """Take the lease in another way; return what ``ask`` does, which is true if it was taken.

        ``ask`` asks the store for it, until the given time.

        Raises:
            StoreError: the store failed.
        """
        until = self._clock.now() + self._seconds
        self._may_be_held = True
        taken = await ask(until)
        if taken:
            self._renew_from(until)
        else:
            self._may_be_held = False
        return taken

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
                    logger.warning("%s: the store failed: %s; retrying", self._what, error)
                await pause(self._clock, wait)
                if self.is_over or self._clock.now() >= last:
                    raise
            wait = min(2 * wait, LONGEST_RETRY)

    def check(self) -> None:
        """Check that the lease is still held.

        Raises:
            StoreError: it has run out, because this process was suspended or the store did not
                answer; another worker may run the call by now.
        """
        if self.is_over:
            raise StoreError(f"The lease on {self._what} has run out. Try again.")

    @property
    def is_over(self) -> bool:
        """Whether it has run out, so that another worker may have it by now."""
        return self.is_lost or self._clock.now() >= self._until

    def lose(self) -> None:
        """Have another worker go on: something was not done, because it was over."""
        if not self.is_lost:
            self.is_lost = True
            self._on_lost()

    def _renew_from(self, until: float) -> None:
        self._until = until
        self._renewing = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        while not self.is_lost:
            await pause(self._clock, self._seconds / 3)
            now = self._clock.now()
            until = now + self._seconds
            try:
                if not await self._prolong(now, until):
                    logger.error("%s: another worker has taken it over", self._what)
                    self.lose()
            except StoreError as error:
                logger.warning("%s: its lease was not renewed: %s", self._what, error)
            else:
                self._until = until

    async def _prolong(self, now: float, until: float) -> bool:
        return await self._leases.lease(self._name, self.owner, now, until)

    async def give_up(self) -> None:
        """Renew it no more: what is written last releases it, or it runs out."""
        await self._stop_renewing()
        self._may_be_held = False

    async def _stop_renewing(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
            if not self._renewing.cancelled() and (problem := self._renewing.exception()):
                logger.error("%s: its lease was not renewed", self._what, exc_info=problem)

    async def _release(self) -> None:
        await self._stop_renewing()
        if not self._may_be_held:
            return
        try:
            await self._leases.release(self._name, self.owner)
        except StoreError as error:  # then it runs out by itself
            logger.warning("%s: its lease could not be released: %s", self._what, error)


class Lease(RenewedLease):
    """The right to run the call ``line``.

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
        super().__init__(store, line, clock, worker=worker, seconds=seconds, kind="call")
        self._store = store
        self._line = line

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
                self._line, number, self.owner, now, until, new=new
            )
            if opened is not None and opened.ended is None:
                self._renew_from(until)
                return opened
            self._may_be_held = False
            if opened is not None:
                return opened
            await pause(self._clock, wait)
            wait = min(2 * wait, LONGEST_RETRY)

    async def end_round(
        self, record: RoundRecord, *, deadline: float, status: str = "open"
    ) -> RoundRecord:
        """Write how the round ended and release the lease, as one; return what is written.

        Raises:
            StoreError: the store failed, or another worker has taken the lease over, and the round
                has not ended.
        """
        await self._stop_renewing()
        ended = await self._store.end_round(
            self._line, record, deadline=deadline, status=status, release=self.owner
        )
        self._may_be_held = False
        return ended

    async def finish(
        self, status: str, *, deadline: float | None = None, version: str | None = None
    ) -> bool:
        """Move the open call to ``status``, as the store does; the lease is not released.

        False if it is not open any more, or another worker has taken the lease over.

        Raises:
            StoreError: the store failed.
        """
        return await self._store.finish(
            self._line, status, deadline=deadline, version=version, owner=self.owner
        )

    async def _prolong(self, now: float, until: float) -> bool:  # noqa: ARG002 - others need it
        # It is not taken again: what this process knows of the call may be old by now.
        return await self._store.renew(self._line, self.owner, until)
