"""A connection to a server whose tools are called, in a task of its own.

The SDK's client has to be left by the task that has entered it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Final

from mcp import Client

from anabranch._aio import cancel_and_wait
from anabranch.mcp._addressing import forget_call
from anabranch.mcp._tool_list import ToolList

logger: logging.Logger = logging.getLogger("anabranch.mcp")

PATIENCE: Final = 120.0
"""Seconds within which a server must answer; a command may have to be installed first."""


class Link:
    """One connection.

    Attributes:
        client: the SDK's client.
    """

    def __init__(self, client: Client, tools: ToolList) -> None:
        self.client = client
        self._tools = tools
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._calls = 0
        self._is_retired = False

    @property
    def is_open(self) -> bool:
        """Whether it has to be closed."""
        return self._task is not None and not self._task.done()

    @property
    def is_usable(self) -> bool:
        """Whether requests can be sent."""
        if self._is_retired or not self.is_open:
            return False
        # The SDK has no public way to ask whether a connection has ended.
        session: Any = self.client.session
        return not getattr(session._dispatcher, "_closed", False)  # noqa: SLF001

    async def open(self) -> None:
        """Connect, and list the tools.

        Raises:
            TimeoutError: the server does not answer in time.
            Exception: as the SDK's client raises it.
        """
        context = copy_context()
        context.run(forget_call)
        task = self._task = asyncio.create_task(self._run(), context=context)
        task.add_done_callback(_read_failure)
        done: set[asyncio.Future[None]] = set()
        try:
            done, _ = await asyncio.wait(
                {task, self._opened}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if not done:
                await cancel_and_wait([task])
        if task in done:
            task.result()
        if not done:
            raise TimeoutError(f"it has not answered within {PATIENCE:g} s")

    @contextmanager
    def used(self) -> Generator[None]:
        """Hold the connection open for a request, although it is retired meanwhile."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self._is_retired:
                self.retire()

    def retire(self) -> None:
        """Disconnect when no request is left."""
        self._is_retired = True
        if not self._calls:
            self._left.set()

    async def close(self) -> None:
        """Disconnect."""
        self._left.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        async with self.client as client:
            await self._tools.read(client)
            self._opened.set_result(None)
            following = asyncio.create_task(self._tools.follow(client))
            try:
                await self._left.wait()
            finally:
                await cancel_and_wait([following])


def _read_failure(task: asyncio.Task[None]) -> None:
    """Keep asyncio from reporting a connection's failure: its calls fail with it themselves."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.debug("A connection has ended: %s", error)
