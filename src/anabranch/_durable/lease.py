"""Leases: one worker at a time runs a call or another job, and renews its lease meanwhile.

A holder may be suspended after any check of its lease. So writes that only the holder may make go
through the store, which checks the owner.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Self, TypeVar

from anabranch._aio import Clock, pause, run_shielded
from anabranch._durable.run_events import RunEvents
from anabranch._durable.store import CallRecord, CallStore, OpenedRound, RoundRecord
from anabranch._durable.transitions import CallEvent
from anabranch.errors import StoreError, UnknownCallError

logger: logging.Logger = logging.getLogger("anabranch.durable")

T = TypeVar("T")

FIRST_RETRY, LONGEST_RETRY = 0.05, 1.0
"""Seconds until the store is asked again, after a failure or about a call that another worker runs.

The pause doubles up to the longest.
"""


class RenewedLease:
    """The right to run one job, as a context manager whose exit releases the lease.

    ``seconds`` after its last renewal, the lease of a dead worker runs out. ``kind`` names the job
    in the log. ``on_lost`` is called when another worker has taken the lease over. Two leases of
    one process have different owners, and exclude each other.
    """

    def __init__(
        self,
        store: CallStore | RunEvents,
        name: str,
        clock: Clock,
        *,
        seconds: float,
        kind: str,
        on_lost: Callable[[], object] = lambda: None,
    ) -> None:
        self.owner: str = secrets.token_hex(8)
        self._processes = store.processes
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

    async def take_by(self, ask: Callable[[float], Awaitable[T]]) -> T:
        """Take the lease until a time by ``ask``, and renew it from then on; return the result of ``ask``."""
        await self._processes.enter()
        until = self._clock.now() + self._seconds
        self._may_be_held = True
        taken = await ask(until)
        if taken:
            self._renew_from(until)
        else:
            self._may_be_held = False
        return taken

    async def while_held(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``work``; run it again if the store fails while the lease is held."""
        # The end is fixed: renewals may succeed for ever while the store refuses `work`.
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
        """Raise ``StoreError`` if the lease has run out, so that another worker may run the call."""
        if self.is_over:
            raise StoreError(f"The lease on {self._what} has run out. Try again.")

    @property
    def is_over(self) -> bool:
        return self.is_lost or self._clock.now() >= self._until

    def lose(self) -> None:
        """Declare the lease lost, because its holder was too slow, and report the loss once."""
        if not self.is_lost:
            self.is_lost = True
            self._on_lost()

    def _renew_from(self, until: float) -> None:
        self._until = until
        self._renewing = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        while not self.is_lost:
            await pause(self._clock, self._seconds / 3)
            until = self._clock.now() + self._seconds
            try:
                if not await self._leases.renew(self._name, self.owner, until):
                    logger.error("%s: another worker has taken it over", self._what)
                    self.lose()
            except StoreError as error:
                logger.warning("%s: its lease was not renewed: %s", self._what, error)
            else:
                self._until = until

    async def give_up(self) -> None:
        """Stop renewing the lease: the holder's last write releases it, or it runs out."""
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
        except StoreError as error:  # the lease then runs out
            logger.warning("%s: its lease could not be released: %s", self._what, error)


class Lease(RenewedLease):
    def __init__(self, store: CallStore, line: str, clock: Clock, *, seconds: float) -> None:
        super().__init__(store, line, clock, seconds=seconds, kind="call")
        self._store = store
        self._line = line

    async def open_round(
        self,
        number: int,
        asks: Collection[str] = (),
        answers: Mapping[str, str] | None = None,
        new: CallRecord | None = None,
    ) -> OpenedRound:
        """Wait until the lease is free, then do as :meth:`CallStore.open_round`; renew the lease."""
        wait = FIRST_RETRY
        await self._processes.enter()
        while True:
            now = self._clock.now()
            until = now + self._seconds
            self._may_be_held = True  # even if the store fails: its answer may have been lost
            opened = await self._store.open_round(
                self._line, number, self.owner, now, until, asks=asks, answers=answers, new=new
            )
            if opened is not None and opened.is_leased:
                self._renew_from(until)
                return opened
            self._may_be_held = False
            if opened is not None:
                return opened
            if not await self._released_for_the_dead():
                await pause(self._clock, wait)
                wait = min(2 * wait, LONGEST_RETRY)

    async def take_to_undo(self, *, is_due: bool) -> CallRecord | None:
        """Take the lease, if it is free, to undo the call's effects; return the call or ``None``.

        The lease of a dead process is free once its death is seen: over Postgres, after several looks.
        """
        now, undo = self._clock.now(), self._store.take_to_undo
        ask = partial(undo, self._line, self.owner, now, is_due=is_due)
        taken = await self.take_by(ask)
        if taken is None and await self._released_for_the_dead():
            taken = await self.take_by(ask)
        return taken

    async def _released_for_the_dead(self) -> bool:
        """Release the lease if its owner's process is dead; return whether the process is dead."""
        found = await self._store.find(self._line)
        held = None if found is None else found.lease
        if held is None or held.process not in await self._processes.dead([held.process]):
            return False
        logger.warning("%s: the process that ran it is dead", self._what)
        await self._store.release(self._line, held.owner)
        return True

    async def end_round(
        self, record: RoundRecord, event: CallEvent, *, deadline: float
    ) -> RoundRecord:
        """Write the round's end, and release the lease; see :meth:`CallStore.end_round`."""
        await self._stop_renewing()
        ended = await self._store.end_round(
            self._line, record, event, owner=self.owner, deadline=deadline
        )
        self._may_be_held = False
        return ended

    async def move(self, event: CallEvent, *, deadline: float | None = None) -> bool:
        await self._stop_renewing()
        moved = await self._store.move(self._line, event, owner=self.owner, deadline=deadline)
        self._may_be_held = not moved
        return moved
