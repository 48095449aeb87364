"""Time and identity for calls: ``Clock`` and ``Ids``, waits, periodic jobs, and rare warnings."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, NoReturn, Protocol

from anabranch._aio.tasks import cancel_and_wait
from anabranch.errors import StoreError


class Timer(Protocol):
    """A callback that :meth:`Clock.call_at` has scheduled."""

    def cancel(self) -> None:
        """Cancel the callback; do nothing if it has run."""


class Clock(Protocol):
    """A source of the wall-clock time, which is comparable between processes and machines."""

    def now(self) -> float:
        """Return the seconds since the epoch."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` on the running event loop when ``now()`` reaches ``when``."""
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
    """Run ``work`` until it ends, or until ``clock`` reaches ``when``; then cancel it."""
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
    """A source of ids and secrets for calls."""

    def call_id(self) -> str:
        """Return a new call id, which is unique and hard to guess."""
        ...

    def secret(self) -> str:
        """Return the seed of a call's randomness, which a client cannot guess."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, when - time.time()), callback)


class SystemIds:
    """Random names, 72 bits each."""

    def call_id(self) -> str:
        return f"call_{secrets.token_urlsafe(9)}"

    def secret(self) -> str:
        """Return 96 random bits; short, because every state carries them."""
        return secrets.token_urlsafe(12)


MINUTE = 60.0


class ThrottledWarning:
    """A warning that other programs can cause often, logged at most once a minute."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._next = 0.0

    def warn(self, text: str, *values: object) -> None:
        """Log the warning, unless it was logged within the last minute."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + MINUTE
            self._logger.warning(text, *values)


logger: logging.Logger = logging.getLogger("anabranch.jobs")

_failing: ContextVar[frozenset[tuple[str, type]]] = ContextVar("failing", default=frozenset())
"""The jobs of this task that have failed since their last success, each with the type of its error."""


async def run_job(name: str, job: Callable[[], Awaitable[object]]) -> bool:
    """Run a job; return whether it succeeded, and log the first of consecutive errors of a kind."""
    known = _failing.get()
    failures = {each for each in known if each[0] == name}
    try:
        await job()
    except Exception as error:
        # After any error the job must run again, or its work would stay undone forever.
        _failing.set(known | {(name, type(error))})
        if (name, type(error)) in failures:
            return False
        if isinstance(error, StoreError):  # the message says it all
            logger.warning("job %r failed, and will run again: %s", name, error)
        else:
            logger.exception("job %r failed, and will run again", name)
        return False
    if failures:
        _failing.set(known - failures)
        logger.warning("job %r works again", name)
    return True


async def run_once(
    clock: Clock, seconds: float, name: str, job: Callable[[], Awaitable[object]]
) -> None:
    """Run a job as :func:`run_job` does, and again ``seconds`` after a failure, until it succeeds."""
    while not await run_job(name, job):
        await pause(clock, seconds)


async def run_every(
    clock: Clock, seconds: float, name: str, job: Callable[[], Awaitable[object]]
) -> NoReturn:
    """Run a job as :func:`run_job` does, with ``seconds`` between its runs, until cancelled."""
    while True:
        await run_job(name, job)
        await pause(clock, seconds)
