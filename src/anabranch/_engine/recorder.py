"""The port of recorders: they write what has happened, in a store say, before the body sees it.

Without a recorder the journal is all there is, and it travels with the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from anabranch._aio import wait_shielded
from anabranch._engine.cursor import ReplayCursor
from anabranch._engine.journal import Compensation, Entry


class Recorder(Protocol):
    """Where a call writes what it has done. Whatever a method raises aborts the run.

    Then nothing is undone: what is written is taken up when the round is tried again.
    """

    def check(self) -> None:
        """Return if this run may still do something new; raise if another one has taken over."""
        ...

    async def record(
        self, entries: Mapping[str, Entry], compensations: Mapping[str, Compensation]
    ) -> Mapping[str, Entry]:
        """Write ``entries``, and the compensations of some of them; all or none.

        It is called before an effect with what that may depend on, which can be nothing (but what
        the recorder itself knows of the round), and after it with what came of it. Return what is
        written now for their ids: the first entry for an id stays.
        """
        ...

    async def failing(self, error: dict[str, Any] | None) -> None:
        """Write that the call has failed, with an error of its own or one to be masked.

        From now on compensations are run, so that the body must not be continued.
        """
        ...

    async def undone(self, step_id: str) -> None:
        """Write that the undo of ``step_id`` has been run."""
        ...


class Records:
    """What one run has added to its journal, on its way to the recorder, if there is one."""

    def __init__(self, cursor: ReplayCursor, recorder: Recorder | None) -> None:
        self.recorder: Recorder | None = recorder
        self._cursor = cursor
        self._writing: asyncio.Lock = asyncio.Lock()
        self._begun = False

    def check(self) -> None:
        """Return if this run may still do something new; raises as :meth:`write` does."""
        if self.recorder is not None:
            self.recorder.check()

    async def failing(self, error: dict[str, Any] | None) -> None:
        """Write that the call has failed, unless there is nothing to undo."""
        if self.recorder is not None and self._cursor.journal.compensations:
            await self.recorder.failing(error)

    async def undone(self, step_id: str) -> None:
        """Write that an undo has been run."""
        if self.recorder is not None:
            await self.recorder.undone(step_id)

    async def write(self) -> None:
        """Write all that was added; runs to completion if the caller is cancelled meanwhile.

        Where another run was first, its entry takes the place of ours.

        Raises:
            Exception: what the recorder raises, also to a caller that is being cancelled: nothing
                may happen that depends on what could not be written.
        """
        if self.recorder is None or not (self._cursor.has_added or self._writing.locked()):
            return
        await self._write_now(self.recorder)

    async def write_ahead(self) -> None:
        """Write what the next effect may depend on, and check that it may still happen.

        Raises:
            Exception: as :meth:`write`.
        """
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
