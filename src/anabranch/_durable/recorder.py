"""The recorder of one round: it writes each effect to the store before its value is seen.

It implements the engine's port ``Recorder``. The texts that it writes are those of ``entries.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from anabranch._durable.entries import dump_entry, load_entry
from anabranch._durable.lease import Lease
from anabranch._durable.store import CallStore
from anabranch._engine import Compensation, Entry, Journal, canonical
from anabranch.errors import StoreError, UnknownCallError

_NOT_RECORDED = (
    "This server cannot reach its records just now, and could not write down what it has done:"
    " {done}. Send the same request again; what is named here may then happen again."
)


T = TypeVar("T")


class StoreRecorder:
    """Writes what one round does to a store.

    Args:
        store: where.
        journal: of the call, whose branches begin and end while the round goes on.
        lease: under which the call runs. While it is held, what has happened is written again and
            again until the store takes it.
        given: stands for the answers with which the round was opened, if one was.
    """

    def __init__(self, store: CallStore, journal: Journal, lease: Lease, given: str = "") -> None:
        self.check = lease.check
        self._lease = lease
        self._store = store
        self._line = journal.line
        self._number = journal.rounds
        self._given = given
        self._deadlines = journal.deadlines
        self._written_deadlines = dict(journal.deadlines)

    async def record(
        self, entries: Mapping[str, Entry], compensations: Mapping[str, Compensation]
    ) -> dict[str, Entry]:
        """Write ``entries``; return those that are stored now, the first for each id.

        Raises:
            StoreError: the store failed; what has happened and is not recorded is then the fact
                ``unrecorded``, and the message may be shown to the client.
        """
        if not entries:
            return {}
        done = {
            f"step {step_id!r} (idempotency key {entry.key!r})"
            for step_id, entry in entries.items()
            if entry.key
        }
        # A branch's time counts from its beginning, also for who goes on from here. Nothing shows
        # that it has begun but what was recorded since.
        now = dict(self._deadlines)
        news = dict(now.items() - self._written_deadlines.items())
        texts = {
            step_id: dump_entry(entry, compensations.get(step_id), {} if number else news)
            for number, (step_id, entry) in enumerate(entries.items())
        }
        write = partial(self._store.record, self._line, self._number, texts, given=self._given)
        stored = await self._written(write, ", ".join(sorted(done)))
        first = next(iter(texts))
        if stored[first] == texts[first]:  # and not another worker's, which does not have them
            self._written_deadlines = now
        return {step_id: load_entry(stored[step_id]).entry for step_id in entries}

    async def failing(self, error: dict[str, Any] | None) -> None:
        """Write that the call has failed.

        Raises:
            StoreError: the store failed, or another worker has taken the call over: what that has
                done must not be undone.
        """
        if not await self._store.fail(self._line, canonical(error), self._lease.owner):
            raise StoreError(f"The lease on call {self._line!r} is another's by now. Try again.")

    async def undone(self, step_id: str) -> None:
        """Write that the compensation of ``step_id`` has been run."""
        write = partial(self._store.undone, self._line, step_id)
        await self._written(write, f"the undo of step {step_id!r}")

    async def _written(self, write: Callable[[], Awaitable[T]], done: str) -> T:
        """Return what ``write`` does; ``done`` says what has happened that only it knows of."""
        try:
            return await (self._lease.while_held(write) if done else write())
        except UnknownCallError:
            raise
        except StoreError as error:
            if done:
                raise StoreError(_NOT_RECORDED.format(done=done), unrecorded=done) from error
            raise
