"""The deadline of one branch: it holds across rounds, because the journal has the time.

When it passes, the branch's body is cancelled; in a replay only after the body has passed what is
recorded, so that its undos are bound to their steps first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

from anabranch._aio import Clock
from anabranch.errors import BranchTimeoutError

T = TypeVar("T")


class Deadline:
    """The time until which the body of the branch at ``path`` may run.

    Args:
        path: of the branch.
        timeout: seconds that the branch has, for the error.
        is_replaying: whether something recorded below a path has not been replayed yet.

    Attributes:
        expired: the deadline has passed while the body ran.
    """

    def __init__(
        self, path: str, timeout: float, clock: Clock, is_replaying: Callable[[str], bool]
    ) -> None:
        self.path: str = path
        self.timeout: float = timeout
        self.expired: bool = False
        self._clock = clock
        self._is_replaying = is_replaying
        self._timeout: asyncio.Timeout | None = None
        self._over = asyncio.Event()
        self._task: asyncio.Task[Any] | None = None

    async def run(self, body: Awaitable[T], when: float) -> T:
        """Return what ``body`` returns, if it ends before ``when``.

        Raises:
            BranchTimeoutError: it has not; its own error, if there was one, is the cause.
        """
        self._task = asyncio.current_task()
        try:
            async with asyncio.timeout(None) as self._timeout:
                if self._clock.now() >= when:
                    self.expired = True
                    value = await body
                else:
                    timer = self._clock.call_at(when, self._on_deadline)
                    try:
                        value = await body
                    finally:
                        timer.cancel()
        except Exception as error:
            if self.expired:
                cause = None if isinstance(error, TimeoutError) else error
                raise BranchTimeoutError(self.path, self.timeout) from cause
            raise
        finally:
            self._over.set()
        if self.expired:  # the body has returned, but thanks to an answer that came too late
            raise BranchTimeoutError(self.path, self.timeout)
        return value

    def _on_deadline(self) -> None:
        self.expired = True
        if not self._is_replaying(self.path):
            self._fire()

    def _fire(self) -> None:
        if self._timeout is not None and not self._is_fired():
            self._timeout.reschedule(asyncio.get_running_loop().time())

    def _is_fired(self) -> bool:
        return self._timeout is not None and self._timeout.expired()

    async def stop(self) -> NoReturn:
        """End the body, and with it the running strand: the deadline has passed.

        Raises:
            asyncio.CancelledError: the strand is the body's own, or ends together with it.
            BranchTimeoutError: the strand outlives the body (nothing awaits it), or the body has
                swallowed its cancellation.
        """
        swallowed = self._is_fired() and asyncio.current_task() is self._task
        self._fire()
        if not swallowed:
            await self._over.wait()
        raise BranchTimeoutError(self.path, self.timeout)
