"""Work that a cancelled caller still waits for, because it must not stop in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


async def wait_shielded(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Return when ``future`` is done, however often the caller is cancelled meanwhile.

    Returns:
        the cancellation, if there was one; the caller raises it after looking at ``future``.
    """
    interrupted: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):  # otherwise it cancels the wait again and again
        while not future.done():
            try:
                await asyncio.wait({future})
            except asyncio.CancelledError as error:
                interrupted = error
    return interrupted


async def run_shielded(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to completion, even if the caller is cancelled, and return its result.

    Raises:
        asyncio.CancelledError: if the caller was cancelled; raised when ``work`` has ended, with
            the error of ``work`` as its cause.
    """
    task = asyncio.ensure_future(work)
    interrupted = await wait_shielded(task)
    if interrupted is not None:
        raise interrupted from None if task.cancelled() else task.exception()
    return task.result()
