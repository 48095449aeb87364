"""Heartbeats during a wait for an answer: progress notifications at an interval.

A client of the handshake era waits for one reply while its user thinks, and many time out after
sixty seconds without a message. A client that gave a progress token, and restarts its timeout at
progress, keeps waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NoReturn

from anabranch._aio import Clock, cancel_and_wait, pause
from anabranch.mcp._request import STEP, McpRequest

COARSE = 2.0**-8


class Heartbeat:
    """The heartbeats of one request.

    Args:
        request: the request, whose client is asked; without a progress token, no heartbeat is sent.
        every: seconds between two heartbeats; ``None`` for none.
        clock: the time.
    """

    def __init__(self, request: McpRequest, every: float | None, clock: Clock) -> None:
        self._request = request
        self._every = every
        self._clock = clock
        self._waiting = 0
        self._beating: asyncio.Task[NoReturn] | None = None

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None]:
        """Send heartbeats inside the block; blocks may overlap, and share them."""
        self._waiting += 1
        if self._beating is None and self._every is not None:
            self._beating = asyncio.create_task(self._beat(self._every))
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting and self._beating is not None:
                # The task ends early only if it cannot send; then the call has ended as well.
                beating, self._beating = self._beating, None
                await cancel_and_wait([beating])

    async def _beat(self, every: float) -> NoReturn:
        while True:
            await pause(self._clock, every)
            await self._request.report_progress(None)


def is_heartbeat(progress: float, total: float | None, message: str | None) -> bool:
    """Return whether a progress notification is a heartbeat, which a user need not see.

    The protocol cannot mark heartbeats; no tool counts in such small steps.
    """
    return message is None and total is None and progress % COARSE != 0 and progress % STEP == 0
