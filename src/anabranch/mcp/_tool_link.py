"""One connection to a server whose tools are called, and the list of its tools.

The task that has entered the SDK's client must leave it, so a connection has a separate task.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Final, NoReturn

import anyio
import anyio.lowlevel
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from pydantic import ValidationError

from anabranch._aio import cancel_and_wait
from anabranch._schemas import UnusableSchemaError, check_schema
from anabranch._text import printable_line
from anabranch.mcp._addressing import forget_call
from anabranch.mcp._client import list_tools
from anabranch.mcp._transports import takes_key

logger: logging.Logger = logging.getLogger("anabranch.mcp")

MOST_TOOLS: Final = 1_000
"""Maximum tools of one server; further ones are left out."""
LARGEST: Final = 256 * 1024
"""Maximum characters of a tool's description, including its schemas."""
LONGEST_READING: Final = 5.0
"""Maximum seconds of processor time for the schemas of a list; later tools are left out."""
PAUSE: Final = 5.0
"""Minimum seconds between two readings of the list."""


class ToolList:
    def __init__(self, place: str) -> None:
        self.tools: dict[str, types.Tool] = {}
        self._place = place
        self._changed = asyncio.Event()

    def takes_key(self, name: str) -> bool:
        return name in self.tools and takes_key(self.tools[name])

    async def on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed.set()

    async def read(self, client: Client) -> None:
        try:
            listed = await list_tools(client)
        except MCPError as error:
            if error.code != types.METHOD_NOT_FOUND:
                raise
            listed = {}
        fit = dict[str, types.Tool]()
        begun = time.thread_time()
        for name, tool in listed.items():
            if len(fit) == MOST_TOOLS or time.thread_time() - begun > LONGEST_READING:
                logger.warning(
                    "%s lists %d tools; only the first %d are used: the others exceed a limit",
                    self._place,
                    len(listed),
                    len(fit),
                )
                break
            if (known := self.tools.get(name)) == tool and known is not None:
                fit[name] = known  # an unchanged tool stays the same object
            elif (problem := _problem(tool)) is None:
                fit[name] = tool
            else:
                shown = printable_line(name)
                logger.warning("%s: the tool %s is left out: %s", self._place, shown, problem)
            await anyio.lowlevel.checkpoint()
        self.tools = fit

    async def follow(self, client: Client) -> NoReturn:
        listening = asyncio.create_task(self._listen(client))
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                try:
                    await self.read(client)
                except (MCPError, ValidationError) as error:
                    logger.warning("%s: its tools cannot be listed again: %s", self._place, error)
                await anyio.sleep(PAUSE)
        finally:
            listening.cancel()
            await asyncio.wait({listening})

    async def _listen(self, client: Client) -> None:
        """Subscribe to changes of the list, which the modern era requires."""
        tools = client.server_capabilities.tools
        while tools is not None and tools.list_changed:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self._changed.set()
            except SubscriptionLost:
                self._changed.set()  # the list may have changed meanwhile
            except (ListenNotSupportedError, MCPError, TimeoutError) as refusal:
                logger.debug("%s does not report changes: %s", self._place, refusal)
                return
            await anyio.sleep(PAUSE)


def _problem(tool: types.Tool) -> str | None:
    """Return the reason why an agent cannot offer ``tool`` to a model, or ``None``."""
    if (size := len(tool.model_dump_json())) > LARGEST:
        return f"it is described in {size:,} characters, which each request to a model would have"
    try:
        check_schema(tool.input_schema)
    except UnusableSchemaError as error:
        return f"its parameters have no valid schema ({str(error)[:200]})"
    return None


PATIENCE: Final = 120.0
"""Maximum seconds until a server answers; it may have to install a command first."""


class Link:
    """One connection to the server, open until it is retired or closed."""

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
        return self._task is not None and not self._task.done()

    @property
    def is_usable(self) -> bool:
        if self._is_retired or not self.is_open:
            return False
        # The SDK has no public query for the end of a connection.
        session: Any = self.client.session
        return not getattr(session._dispatcher, "_closed", False)  # noqa: SLF001

    async def open(self) -> None:
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
        """Hold the connection open in the block, for a request, even if it is retired meanwhile."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self._is_retired:
                self.retire()

    def retire(self) -> None:
        """Accept no new request, and disconnect after the last running request."""
        self._is_retired = True
        if not self._calls:
            self._left.set()

    async def close(self) -> None:
        """Disconnect at once, and wait for the end of the connection."""
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
    """Retrieve a connection's failure, so that asyncio does not report it; the calls report it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.debug("A connection has ended: %s", error)
