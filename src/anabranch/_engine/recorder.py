"""What has happened is written down before anybody sees it: law 2, with a store.

Owns the port through which a call writes, and what is still to be written. Without a recorder the
journal is all there is, and it travels with the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from anabranch._engine.combine import to_the_end
from anabranch._engine.journal import Entry, Journal, Owed

__all__ = ["Recorder", "Records"]


class Recorder(Protocol):
    """Where a call writes what it has done. Whatever a method raises breaks the run off.

    Then nothing is undone: what is written is taken up when the round is tried again.
    """

    def check(self) -> None:
        """Return if this run may still do something new; raise if it is another's turn."""
        ...

    async def record(
        self, entries: Mapping[str, Entry], owed: Mapping[str, Owed]
    ) -> Mapping[str, Entry]:
        """Write ``entries``, and the undos that some of them owe; all or none.

        It is called before an effect with what that may depend on, which can be nothing (but what
        the recorder itself knows of the round), and after it with what came of it. Return what is written now for their ids: the first entry for an id stays.
        """
        ...

    async def failing(self, error: dict[str, Any] | None) -> None:
        """Write that the call has failed, with an error of its own or one to be masked.

        From now on undos are paid, so that the body must not be continued.
        """
        ...

    async def paid(self, step_id: str) -> None:
        """Write that the undo of ``step_id`` has been run."""
        ...


class Records:
    """What one run has added to ``journal`` and not yet given to its recorder, if it has one."""

    def __init__(self, journal: Journal, recorder: Recorder | None) -> None:
        self.recorder = recorder
        self._journal = journal
        self._unwritten: dict[str, Entry] = {}
        self._writing: asyncio.Lock = asyncio.Lock()
        self._begun = False

    def check(self) -> None:
        """Return if this run may still do something new; raises as :meth:`write` does."""
        if self.recorder is not None:
            self.recorder.check()

    def add(self, step_id: str, entry: Entry) -> None:
        """Have ``entry`` written together with the next effect, which may depend on it."""
        if self.recorder is not None:
            self._unwritten[step_id] = entry

    async def failing(self, error: dict[str, Any] | None) -> None:
        """Write that the call has failed, unless nothing is owed."""
        if self.recorder is not None and self._journal.owed:
            await self.recorder.failing(error)

    async def paid(self, step_id: str) -> None:
        """Write that an undo has been run."""
        if self.recorder is not None:
            await self.recorder.paid(step_id)

    async def write(self) -> None:
        """Write all that was added; goes on to its end if the caller is cancelled meanwhile.

        Where another run was first, its entry takes the place of ours.

        Raises:
            Exception: what the recorder raises, also to a caller that is being cancelled: nothing
                may happen that depends on what could not be written.
        """
        if self.recorder is None or not (self._unwritten or self._writing.locked()):
            return
        await self._write_now(self.recorder)

    async def write_ahead(self) -> None:
        """Write what an effect that comes now may depend on, and see that it may come.

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
        try:
            await to_the_end(_ended(writing))
        except asyncio.CancelledError:
            if (problem := writing.exception()) is not None:
                raise problem from None
            raise
        writing.result()

    async def _write(self, recorder: Recorder) -> None:
        # One at a time: an entry must not be there without those that came before it.
        async with self._writing:
            batch, self._unwritten = self._unwritten, {}
            if self._begun and not batch:  # written along with another's
                return
            owed = {owed.step_id: owed for owed in self._journal.owed if owed.step_id in batch}
            for step_id, entry in (await recorder.record(batch, owed)).items():
                if step_id in self._journal.entries:
                    self._journal.entries[step_id] = entry


async def _ended(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})
