"""What comes to be written at the same time is written together.

Owns nothing but this: branches that run side by side often answer at the same moment, and a store
takes a hundred nodes in hardly more time than one. What is written for one of them fails, or is
interrupted, as if it was alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.call import to_the_end
from anabranch.call.store import StoreError
from anabranch.tree import Node, Ref, Result, TreeStore

__all__ = ["Appends"]


@dataclass(slots=True)
class _Append:
    nodes: Sequence[Node]
    results: Sequence[Result]
    refs: Sequence[Ref]
    done: bool = False
    error: BaseException | None = None


class Appends:
    """The way into ``store`` for all branches of a turn."""

    def __init__(self, store: TreeStore) -> None:
        self._store = store
        self._waiting: list[_Append] = []
        self._writing = asyncio.Lock()

    async def append(
        self, nodes: Sequence[Node], results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        """Do what :meth:`TreeStore.append` does, along with whatever else waits to be written.

        Cancelled, it is there or not, as with the store; what goes along is not affected.
        """
        mine = _Append(nodes, results, refs)
        self._waiting.append(mine)
        try:
            async with self._writing:
                if not mine.done:
                    batch, self._waiting = self._waiting, []
                    await to_the_end(self._write(batch))
        finally:
            if not mine.done and mine in self._waiting:
                self._waiting.remove(mine)
        if mine.error is not None:
            raise mine.error

    async def _write(self, batch: Sequence[_Append]) -> None:
        try:
            await self._together(batch)
        except StoreError:
            for each in batch:  # one of them cannot be written: which?
                await self._alone(each)

    async def _together(self, batch: Sequence[_Append]) -> None:
        await self._store.append(
            [node for each in batch for node in each.nodes],
            results=[result for each in batch for result in each.results],
            refs=[ref for each in batch for ref in each.refs],
        )
        for each in batch:
            each.done = True

    async def _alone(self, one: _Append) -> None:
        try:
            await self._together([one])
        except StoreError as error:
            one.done, one.error = True, error
