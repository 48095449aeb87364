"""A queue in front of a tree store that combines appends made at the same time into one write.

Branches that run concurrently often reply at the same moment, and a store writes a hundred nodes
in hardly more time than one. Each append still succeeds, is refused, or is cancelled on its own;
only a store that cannot write at all fails all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from anabranch._aio import run_shielded
from anabranch.tree import Node, Ref, RefusedError, Result, TreeStore


@dataclass(slots=True)
class _Append:
    nodes: Sequence[Node]
    results: Sequence[Result]
    refs: Sequence[Ref]
    done: asyncio.Future[None]


class AppendQueue:
    """Appends to ``store`` for all branches of a turn."""

    def __init__(self, store: TreeStore) -> None:
        self._store = store
        self._waiting: list[_Append] = []
        self._writer: asyncio.Future[None] | None = None

    async def append(
        self, nodes: Sequence[Node], results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        """Append as :meth:`TreeStore.append` does, combined with whatever else is waiting.

        If the caller is cancelled, the nodes are written all the same, and the cancellation is
        raised once they are.
        """
        own = _Append(nodes, results, refs, asyncio.get_running_loop().create_future())
        self._waiting.append(own)
        writer = self._writer
        if writer is None:
            writer = self._writer = asyncio.ensure_future(self._write())
        try:
            await own.done
        except asyncio.CancelledError:
            await run_shielded(_wait_for(writer))
            raise

    async def _write(self) -> None:
        """Write until nothing is waiting."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._write_batch(batch)
        finally:
            self._writer = None

    async def _write_batch(self, batch: Sequence[_Append]) -> None:
        try:
            await self._write_at_once(batch)
        except RefusedError as error:
            if len(batch) == 1:
                _finish(batch, error)
                return
            for each in batch:  # one of them is at fault: find out which
                await self._write_batch([each])
        except BaseException as error:  # noqa: BLE001 - raised by each append that waits for it
            _finish(batch, error)

    async def _write_at_once(self, batch: Sequence[_Append]) -> None:
        await self._store.append(
            [node for each in batch for node in each.nodes],
            results=[result for each in batch for result in each.results],
            refs=[ref for each in batch for ref in each.refs],
        )
        _finish(batch)


async def added_or_found(
    store: TreeStore, nodes: Sequence[Node], appending: Awaitable[None]
) -> list[Node]:
    """Return nodes when ``appending`` has added them; or what another process has added there before.

    A node of a run is named after its place: the first one stays, and all go on from it.

    Raises:
        RefusedError: they are refused for another reason.
    """
    try:
        await appending
    except RefusedError:
        found = [await store.node(node.id) for node in nodes]
        there = [node for node in found if node is not None]
        if len(there) < len(nodes):
            raise
        return there
    return list(nodes)


def _finish(batch: Sequence[_Append], error: BaseException | None = None) -> None:
    for each in batch:
        if each.done.done():
            continue  # it was cancelled meanwhile
        if error is None:
            each.done.set_result(None)
        elif isinstance(error, asyncio.CancelledError):
            each.done.cancel()
        else:
            each.done.set_exception(error)


async def _wait_for(writer: asyncio.Future[None]) -> None:
    await asyncio.wait({writer})
