"""The stores that a command works on: opened at its ``--store``, and closed when it has ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol, TypeVar

from anabranch._terminal.exits import FailedError, UsageError
from anabranch._terminal.interrupts import run_command
from anabranch.cli._options import store_url
from anabranch.errors import StoreError
from anabranch.stores import CallStore, RunEvents, open_run_events, open_stores
from anabranch.tree import TreeStore


class _Store(Protocol):
    async def close(self) -> None: ...


S = TypeVar("S", bound=_Store)
T = TypeVar("T")


class Stores(NamedTuple):
    """Calls, conversations and the events of runs, over the same connections."""

    calls: CallStore
    trees: TreeStore
    events: RunEvents

    @classmethod
    def at(cls, url: str) -> Stores:
        """Return those at ``url``.

        Raises:
            StoreError: there can be none.
        """
        calls, trees = open_stores(url)
        return cls(calls, trees, open_run_events(trees))

    async def close(self) -> None:
        """Close the connections."""
        await self.calls.close()


def with_store(
    opened: Callable[[str], S],
    url: str | None,
    work: Callable[[S], Awaitable[T]],
    *failures: type[Exception],
) -> T:
    """Return what ``work`` returns of the store that ``opened`` returns.

    Raises:
        UsageError: there can be no store at the URL.
        FailedError: the store failed; or ``work`` raised one of ``failures``.
    """
    expected: tuple[type[Exception], ...] = (StoreError, *failures)

    async def run() -> T:
        try:
            store = opened(store_url(url))
        except StoreError as error:
            raise UsageError(str(error)) from error
        try:
            return await work(store)
        except expected as error:
            raise FailedError(str(error)) from error
        finally:
            await store.close()

    return run_command(run)
