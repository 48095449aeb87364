"""The calls that run in this process: they are ended before their server goes away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

logger: logging.Logger = logging.getLogger("anabranch.durable")


class RunningCalls:
    """The calls, and rounds of calls, that a server runs just now."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Future[None], asyncio.Task[Any]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @contextmanager
    def track(self) -> Generator[None]:
        """Count the current task among them, within the block."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("A call runs in a task of asyncio.")
        ended: asyncio.Future[None] = task.get_loop().create_future()
        self._tasks[ended] = task
        try:
            yield
        finally:
            del self._tasks[ended]
            ended.set_result(None)

    async def end(self, grace: float) -> None:
        """Cancel those of this loop, and wait until they have run their compensations.

        Args:
            grace: seconds to wait; what takes longer goes on for as long as the process does.
        """
        loop = asyncio.get_running_loop()
        here = {ended: task for ended, task in self._tasks.items() if task.get_loop() is loop}
        if not here:
            return
        logger.warning(
            "the server stops: %d calls are ended and undone within %g s", len(here), grace
        )
        for task in here.values():
            task.cancel()
        _, left = await asyncio.wait(here, timeout=grace)
        if left:
            logger.error("%d calls were not undone within %g s", len(left), grace)
