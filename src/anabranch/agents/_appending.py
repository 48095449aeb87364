"""What comes to be written at the same time is written together.

Owns nothing but this: branches that run side by side often answer at the same moment, and a store
takes a hundred nodes in hardly more time than one. What is written for one of them is refused, or
interrupted, as if it was alone; a store that cannot write fails them all at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch._engine import run_shielded
from anabranch.tree import Node, Ref, RefusedError, Result, TreeStore

__all__ = ["Appends"]


@dataclass(slots=True)
class _Append:
    nodes: Sequence[Node]
    results: Sequence[Result]
    refs: Sequence[Ref]
    done: asyncio.Future[None]


class Appends:
    """The way into ``store`` for all branches of a turn."""

    def __init__(self, store: TreeStore) -> None:
        self._store = store
        self._waiting: list[_Append] = []
        self._writer: asyncio.Future[None] | None = None

    async def append(
        self, nodes: Sequence[Node], results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        """Do what :meth:`TreeStore.append` does, along with whatever else waits to be written.

        It is written even if this is cancelled, which then ends when that is done.
        """
        mine = _Append(nodes, results, refs, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        writer = self._writer
        if writer is None:
            writer = self._writer = asyncio.ensure_future(self._write())
        try:
            await mine.done
        except asyncio.CancelledError:
            await run_shielded(_end_of(writer))
            raise

    async def _write(self) -> None:
        """Write until nothing waits any more."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._write_batch(batch)
        finally:
            self._writer = None

    async def _write_batch(self, batch: Sequence[_Append]) -> None:
        try:
            await self._together(batch)
        except RefusedError as error:
            if len(batch) == 1:
                _end(batch, error)
                return
            for each in batch:  # one of them has no place: which?
                await self._write_batch([each])
        except BaseException as error:  # noqa: BLE001 - whoever waits for it raises it
            _end(batch, error)

    async def _together(self, batch: Sequence[_Append]) -> None:
        await self._store.append(
            [node for each in batch for node in each.nodes],
            results=[result for each in batch for result in each.results],
            refs=[ref for each in batch for ref in each.refs],
        )
        _end(batch)


def _end(batch: Sequence[_Append], error: BaseException | None = None) -> None:
    for each in batch:
        if each.done.done():
            continue  # it was cancelled meanwhile
        if error is None:
            each.done.set_result(None)
        elif isinstance(error, asyncio.CancelledError):
            each.done.cancel()
        else:
            each.done.set_exception(error)


async def _end_of(writer: asyncio.Future[None]) -> None:
    await asyncio.wait({writer})
