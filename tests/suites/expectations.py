"""Helpers that open a store for a check, and report which promise is broken.

A check receives a function that opens an empty store, and closes each store that it opens. A check
with threads or processes opens the same store more than once. Its function opens the same data
every time and is picklable, such as ``functools.partial(anabranch.stores.open_store, url)``. A
check raises ``AssertionError`` with the broken promise. No check reads a clock: times are
constants.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import anyio

from anabranch.errors import StoreError

TEXTS: Sequence[str] = (
    "",
    "plain",
    "\x00 in\x00side\x00",
    "Zoë 🃏 東京 ﷺ \u202e",
    "'\"\\%s :x {} \n\r\t",
    "\udc80\ud800",
)
"""Texts that stores tend to lose or to change."""


def expect(found: object, wanted: object, promise: str) -> None:
    """Compare two values, and name the broken promise if they differ."""
    if found != wanted:
        raise AssertionError(f"{promise}: found {found!r}, expected {wanted!r}")


def yes(found: object, promise: str) -> None:
    expect(found, wanted=True, promise=promise)


def no(found: object, promise: str) -> None:
    expect(found, wanted=False, promise=promise)


class Closable(Protocol):
    """A store of any kind, which can be closed."""

    async def close(self) -> None: ...


S = TypeVar("S", bound=Closable)


@asynccontextmanager
async def opened(open_store: Callable[[], S]) -> AsyncGenerator[S]:
    store = open_store()
    try:
        yield store
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()


async def refused(
    doing: Awaitable[object], promise: str, kind: type[StoreError] = StoreError
) -> None:
    found: object
    try:
        found = await doing
    except kind:
        return
    except StoreError as error:
        found = error
    raise AssertionError(f"{promise}: found {found!r}, expected a {kind.__name__}")
