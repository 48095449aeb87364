"""Leases: one worker at a time runs something, and its lease is renewed while it does.

The holder decides what is done under a lease, and what follows when it is lost. The lease on a call
is also taken with the opening of a round, and released with its end. Its holder may be suspended
after any check that it makes here: what no other may write, the store writes for its owner only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Protocol, Self, TypeVar

from anabranch._aio import Clock, pause, run_shielded
from anabranch._durable.call_states import CallEvent
from anabranch._durable.engine import Processes, new_owner, process_of
from anabranch._durable.store import CallRecord, CallStore, OpenedRound, RoundRecord
from anabranch.errors import StoreError, UnknownCallError

logger: logging.Logger = logging.getLogger("anabranch.durable")

T = TypeVar("T")

FIRST_RETRY, LONGEST_RETRY = 0.05, 1.0
"""Seconds until the store is asked again: for a call that another worker runs, or after a failure.

They double up to the longest.
"""


class Leases(Protocol):
    """Where leases are stored, each under the name of what is run."""

    @property
    def processes(self) -> Processes:
        """The processes that share the store."""
        ...

    async def renew(self, name: str, owner: str, until: float, /) -> bool:
        """Have a lease last until ``until``, also one that has run out; false if it is not the owner's."""
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
        self.owner: str = new_owner(worker, store.processes)
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
        """Take the lease, and renew it from then on; return what ``ask`` does, true if it was taken.

        ``ask`` asks the store for it, until the given time.

        Raises:
            StoreError: if the store failed.
        """
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
        """Return what ``work`` returns; try it again while the store fails and the lease is held.

        Raises:
            StoreError: if the store failed until the lease had run out, or for as long as a lease
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

    async def open_round(
        self,
        number: int,
        asks: Collection[str] = (),
        answers: Mapping[str, str] | None = None,
        new: CallRecord | None = None,
    ) -> OpenedRound:
        """Wait until the lease is free and take it, with a round; return what is recorded of that.

        It is free as soon as its owner's process is dead. The lease is renewed from then on. What
        cannot be opened is returned at once, and nothing is taken, as by :meth:`CallStore.open_round`,
        which says what is given.

        Raises:
            UnknownCallError: if the store does not have the call, and there is no ``new``.
            StoreError: if the store failed.
        """
        wait = FIRST_RETRY
        await self._processes.enter()
        while True:
            now = self._clock.now()
            until = now + self._seconds
            self._may_be_held = True  # also if the store fails: its answer may have been lost
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
        """Take the lease, if it is free, to undo what the call has done; return the call.

        Where its owner's process is seen to be dead, it is free; over Postgres that takes several looks.

        Raises:
            StoreError: if the store failed.
        """
        now, undo = self._clock.now(), self._store.take_to_undo
        ask = partial(undo, self._line, self.owner, now, is_due=is_due)
        taken = await self.take_by(ask)
        if taken is None and await self._released_for_the_dead():
            taken = await self.take_by(ask)
        return taken

    async def _released_for_the_dead(self) -> bool:
        """Release the lease if its owner's process is dead; return whether it was."""
        found = await self._store.find(self._line)
        held = None if found is None else found.lease
        process = "" if held is None else process_of(held.owner)
        if held is None or not process or process not in await self._processes.dead([process]):
            return False
        logger.warning("%s: the process that ran it is dead", self._what)
        await self._store.release(self._line, held.owner)
        return True

    async def end_round(
        self, record: RoundRecord, event: CallEvent, *, deadline: float
    ) -> RoundRecord:
        """Write how the round ended, move the call, and release the lease, as one; return what is written.

        Raises:
            StoreError: if the store failed, or another worker has taken the lease over, and the
                round has not ended.
        """
        await self._stop_renewing()
        ended = await self._store.end_round(
            self._line, record, event, owner=self.owner, deadline=deadline
        )
        self._may_be_held = False
        return ended

    async def move(self, event: CallEvent, *, deadline: float | None = None) -> bool:
        """Move the call by an event that ends the lease, as :meth:`CallStore.move` does.

        Raises:
            StoreError: if the store failed.
        """
        await self._stop_renewing()
        moved = await self._store.move(self._line, event, owner=self.owner, deadline=deadline)
        self._may_be_held = not moved
        return moved

    async def adopt(self, version: str) -> bool:
        """Make the call that of this version of the code, as :meth:`CallStore.adopt` does.

        Raises:
            StoreError: if the store failed.
        """
        return await self._store.adopt(self._line, version, self.owner)
