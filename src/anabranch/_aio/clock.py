"""Time and identity, as a call is given them: two ports and their everyday implementations.

The engine reads no clock and makes no names of its own. ``anabranch.testing`` has implementations
that tests drive by hand.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from anabranch._aio.combine import cancel_and_wait


class Timer(Protocol):
    """What :meth:`Clock.call_at` returns."""

    def cancel(self) -> None:
        """Make sure that the callback is not called; harmless when it already was."""


class Clock(Protocol):
    """Wall-clock time: it must mean the same in the next round and on another machine."""

    def now(self) -> float:
        """Return the seconds since the epoch."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` on the running loop once ``now()`` has reached ``when``."""
        ...


async def pause(clock: Clock, seconds: float) -> None:
    """Return when ``seconds`` have passed on ``clock``."""
    over = asyncio.Event()
    timer = clock.call_at(clock.now() + seconds, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()


async def run_until(clock: Clock, when: float | None, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until it has ended, or else until ``clock`` has reached ``when``: then cancel it.

    Raises:
        Exception: what ``work`` raises.
    """
    if when is None:
        return await work
    working = asyncio.ensure_future(work)
    waking = asyncio.ensure_future(pause(clock, when - clock.now()))
    try:
        await asyncio.wait({working, waking}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait([working, waking])
    return None if working.cancelled() else working.result()


class Ids(Protocol):
    """A source of names for calls."""

    def call_id(self) -> str:
        """Return a name that no other call has, hard to guess."""
        ...

    def secret(self) -> str:
        """Return what the randomness of a call follows from; no one can guess it."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return ``time.time()``."""
        return time.time()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Use the running asyncio loop's timer."""
        return asyncio.get_running_loop().call_later(max(0.0, when - time.time()), callback)


class SystemIds:
    """Random names, 72 bits each."""

    def call_id(self) -> str:
        """Return ``call_`` and twelve URL-safe characters."""
        return f"call_{secrets.token_urlsafe(9)}"

    def secret(self) -> str:
        """Return 96 random bits: they travel in every state."""
        return secrets.token_urlsafe(12)
