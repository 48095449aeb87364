"""Signs of life while an answer is awaited: progress notifications at an interval.

A client of the handshake era waits for one reply while its person thinks, and many give up after
sixty seconds in which nothing arrives. Those that gave a progress token, and let their timeout
begin again at progress, go on waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NoReturn

from anabranch._aio import Clock, cancel_and_wait, pause
from anabranch.mcp._request import STEP, McpRequest

HEARTBEAT = 15.0
"""Seconds between two signs of life, by default."""
COARSE = 2.0**-8


class Heartbeat:
    """The signs of life of one request.

    Args:
        request: whose client is asked; without a progress token it is sent nothing.
        every: seconds between two of them; ``None`` for none.
        clock: time.
    """

    def __init__(self, request: McpRequest, every: float | None, clock: Clock) -> None:
        self._request = request
        self._every = every
        self._clock = clock
        self._waiting = 0
        self._beating: asyncio.Task[NoReturn] | None = None

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None]:
        """Send signs of life inside the block; blocks may overlap, and share them."""
        self._waiting += 1
        if self._beating is None and self._every is not None:
            self._beating = asyncio.create_task(self._beat(self._every))
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting and self._beating is not None:
                # It ends by itself only if it cannot send, and then the call has ended as well.
                beating, self._beating = self._beating, None
                await cancel_and_wait([beating])

    async def _beat(self, every: float) -> NoReturn:
        while True:
            await pause(self._clock, every)
            await self._request.report_progress(None)


def is_heartbeat(progress: float, total: float | None, message: str | None) -> bool:
    """Return whether a progress notification is a sign of life, and nothing to show to a person.

    The protocol has no mark for them; no tool counts in such small steps.
    """
    return message is None and total is None and progress % COARSE != 0 and progress % STEP == 0
