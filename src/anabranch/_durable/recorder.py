"""The recorder of one round: it writes each effect to the store before its value is seen.

It implements the engine's port ``Recorder``. The texts that it writes are those of ``entries.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from anabranch._durable.entries import (
    FAILED,
    answers_id,
    dump_entry,
    load_entry,
    undone_id,
)
from anabranch._durable.lease import Lease
from anabranch._durable.store import CallStore
from anabranch._engine import Compensation, Entry, canonical
from anabranch.errors import StoreError, UnknownCallError

__all__ = ["StoreRecorder"]

_NOT_RECORDED = (
    "This server cannot reach its records just now, and could not write down what it has done:"
    " {done}. Send the same request again; what is named here may then happen again."
)


class StoreRecorder:
    """Writes what one round does to a store.

    Args:
        store: where.
        line: the call's name there.
        number: the round's.
        answers: those that the round was given, as ``answers_text`` writes them. They are written
            with the first entries, since what the round does depends on them.
        lease: under which the call runs. While it is held, what has happened is written again and
            again until the store takes it.
    """

    def __init__(
        self, store: CallStore, line: str, number: int, answers: str, lease: Lease
    ) -> None:
        self.check = lease.check
        self._lease = lease
        self._store = store
        self._line = line
        self._number = number
        self._answers = answers
        self._is_pinned = number == 0  # nothing was asked before: there are no other answers

    async def record(
        self, entries: Mapping[str, Entry], compensations: Mapping[str, Compensation]
    ) -> dict[str, Entry]:
        """Write ``entries``; return those that are stored now, the first for each id.

        Raises:
            StoreError: the store failed (what has happened and is not recorded is then the fact
                ``unrecorded``, and the message may be shown to the client), or the round runs with other answers somewhere else.
        """
        done = {
            f"step {step_id!r} (idempotency key {entry.key!r})"
            for step_id, entry in entries.items()
            if entry.key
        }
        texts = {
            step_id: dump_entry(entry, compensations.get(step_id))
            for step_id, entry in entries.items()
        }
        stored = await self._write(texts, ", ".join(sorted(done)))
        return {step_id: load_entry(stored[step_id])[0] for step_id in entries}

    async def failing(self, error: dict[str, Any] | None) -> None:
        """Write that the call has failed.

        Raises:
            StoreError: the store failed, or another worker has taken the call over: what that has
                done must not be undone.
        """
        await self._write({FAILED: canonical(error)}, owner=self._lease.owner)

    async def undone(self, step_id: str) -> None:
        """Write that the compensation of ``step_id`` has been run."""
        await self._write({undone_id(step_id): ""}, f"the undo of step {step_id!r}")

    async def _write(
        self, texts: Mapping[str, str], done: str = "", *, owner: str | None = None
    ) -> dict[str, str]:
        """Write ``texts``, only if ``owner`` still has the lease, if one is given.

        ``done`` says what has happened that only they know of: it is written in any case.
        """
        mark = answers_id(self._number)
        pinning = {} if self._is_pinned else {mark: self._answers}
        if not texts and not pinning:
            return {}

        def write() -> Awaitable[dict[str, str]]:
            return self._store.record(self._line, self._number, {**pinning, **texts}, owner=owner)

        try:
            stored = await (self._lease.while_held(write) if done else write())
        except UnknownCallError:
            raise
        except StoreError as error:
            if done:
                raise StoreError(_NOT_RECORDED.format(done=done), unrecorded=done) from error
            raise
        if stored.get(mark, self._answers) != self._answers:
            raise StoreError(f"Call {self._line!r} was taken over, with other answers. Try again.")
        self._is_pinned = True
        return stored
