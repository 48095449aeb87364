"""Periodic jobs: each continues after any failure, and the log has the first failure of each kind."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import NoReturn

from anabranch._aio.clock import Clock, pause
from anabranch.errors import StoreError

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
            logger.warning("%s: not done this time, and tried again: %s", name, error)
        else:
            logger.exception("%s: not done this time, and tried again", name)
        return False
    if failures:
        _failing.set(known - failures)
        logger.warning("%s: done again", name)
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
