"""The ports of a call: the recorder, which stores each entry before the body sees it, and the observer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeAlias

from anabranch._aio import wait_shielded
from anabranch._engine.cursor import ReplayCursor
from anabranch._engine.journal import Compensation, Entry

Observe: TypeAlias = Callable[[str, str], AbstractContextManager[object]]
"""Returns a context manager around each step, undo, ask and branch (kind, id) that is not replayed.

It sees the error that ends the operation. A cancelled operation may run again in a later round.
"""

_UNOBSERVED: AbstractContextManager[None] = nullcontext()


def unobserved(kind: str, step_id: str) -> AbstractContextManager[object]:
    del kind, step_id
    return _UNOBSERVED


class Recorder(Protocol):
    """Writes the entries of a call. An error of any method aborts the run, and then no undo runs.

    The round is tried again with the written entries, and would find its effects undone.
    """

    def check(self) -> None:
        """Return if this run may start a new operation; raise if another run has taken over."""
        ...

    async def record(
        self, entries: Mapping[str, Entry], compensations: Mapping[str, Compensation]
    ) -> Mapping[str, Entry]:
        """Write all of ``entries`` and ``compensations``, or none; return the entries now stored.

        The call before an effect has the entries that the effect may depend on. That call may be
        empty, for the recorder's own facts about the round. The call after an effect has its
        outcome. The first entry for an id stays, and is returned in place of a later one.
        """
        ...

    async def failing(self, error: dict[str, Any] | None) -> None:
        """Write that the call has failed, so that undos run; ``None`` stands for an error to mask.

        From now on, no later round may continue the body.
        """
        ...

    async def undone(self, step_id: str) -> None:
        """Write that the undo of ``step_id`` has run."""
        ...


class Records:
    """Sends the new entries of one run to its recorder, if there is one."""

    def __init__(self, cursor: ReplayCursor, recorder: Recorder | None) -> None:
        self.recorder: Recorder | None = recorder
        self._cursor = cursor
        self._writing: asyncio.Lock = asyncio.Lock()
        self._begun = False

    def check(self) -> None:
        if self.recorder is not None:
            self.recorder.check()

    async def failing(self, error: dict[str, Any] | None) -> None:
        """Write that the call has failed, if it has undos."""
        if self.recorder is not None and self._cursor.journal.compensations:
            await self.recorder.failing(error)

    async def undone(self, step_id: str) -> None:
        if self.recorder is not None:
            await self.recorder.undone(step_id)

    async def write(self) -> None:
        """Write all new entries, even if the caller is cancelled meanwhile.

        An error of the recorder reaches even a caller that is being cancelled: no effect may depend
        on an entry that could not be written.
        """
        # An effect must wait for entries that another strand is writing:
        # test_an_effect_waits_for_the_record_of_another_strand.
        if self.recorder is None or not (self._cursor.has_added or self._writing.locked()):
            return
        await self._write_now(self.recorder)

    async def write_ahead(self) -> None:
        """Write the entries that the next effect may depend on; check that it may still run."""
        if self.recorder is None:
            return
        if self._begun:
            await self.write()
        else:  # the recorder may know more of the round than it has been given to write
            await self._write_now(self.recorder)
            self._begun = True
        self.recorder.check()

    async def _write_now(self, recorder: Recorder) -> None:
        writing = asyncio.ensure_future(self._write(recorder))
        # A cancelled write would leave open whether its entries are stored:
        # test_a_strand_cancelled_while_it_records_ends_after_the_record.
        interrupted = await wait_shielded(writing)
        writing.result()  # raises what the recorder raised
        if interrupted is not None:
            raise interrupted

    async def _write(self, recorder: Recorder) -> None:
        # One at a time: an entry must not be there without those that came before it.
        async with self._writing:
            batch = self._cursor.take_added()
            if self._begun and not batch:  # written along with another's
                return
            due = self._cursor.journal.compensations
            mine = {one.step_id: one for one in due if one.step_id in batch}
            for step_id, entry in (await recorder.record(batch, mine)).items():
                self._cursor.replace(step_id, entry)
