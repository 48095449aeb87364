"""Connections to servers, for the SDK's client: to a URL with headers, or to a started process.

Each can be made several times, one after the other.
"""

from __future__ import annotations

import logging
import os
import shlex
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import IO, Any, Final

import anyio.to_thread
import httpx2
from mcp import StdioServerParameters
from mcp.client import Transport
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

__all__ = ["COMMAND", "Started", "WithHeaders", "command_of"]

logger: logging.Logger = logging.getLogger("anabranch.mcp")

COMMAND: Final = "command:"
OURS: Final = "ANABRANCH_"
"""What the names of this library's own settings and secrets begin with."""

_TIMEOUT: Final = httpx2.Timeout(30, read=300)  # as the SDK's client has it
LONGEST_LINE: Final = 2_000
SOON: Final = 1.0
"""Seconds to wait for the last words of a process that has ended."""


def command_of(server: str) -> StdioServerParameters:
    """Return what starts the server ``command:…``, without this library's settings and secrets.

    Raises:
        ValueError: it cannot be read, or there is none.
    """
    try:
        words = shlex.split(server.removeprefix(COMMAND))
    except ValueError as error:
        raise ValueError(f"{server!r} cannot be read as a command: {error}.") from error
    if not words:
        raise ValueError("Write the command that starts the server after command:.")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    command, *arguments = words
    return StdioServerParameters(
        command=command, args=arguments, env=inherited, encoding_error_handler="replace"
    )


class _Reopened(Transport):
    """The base: what is entered is left with the connection."""

    def __init__(self) -> None:
        self._stack: AsyncExitStack = AsyncExitStack()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, traceback)


class WithHeaders(_Reopened):
    """A connection to the server at ``url``. The headers are sent to no other origin."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        super().__init__()
        self._url = url
        self._headers = dict(headers)

    async def __aenter__(self) -> Any:  # noqa: ANN401 - the SDK names its streams privately
        http = httpx2.AsyncClient(headers=self._headers, timeout=_TIMEOUT)
        client = await self._stack.enter_async_context(http)
        connection = streamable_http_client(self._url, http_client=client)
        return await self._stack.enter_async_context(connection)


class Started(_Reopened):
    """A connection to a process that is started for it; what it writes to stderr is logged.

    So it cannot control the terminal of this process.
    """

    def __init__(self, command: StdioServerParameters) -> None:
        super().__init__()
        self._command = command
        self._said: deque[str] = deque(maxlen=1)
        self._reader: threading.Thread | None = None

    async def __aenter__(self) -> Any:  # noqa: ANN401 - the SDK names its streams privately
        reading, writing = os.pipe()
        said = open(reading, encoding="utf-8", errors="replace")  # noqa: ASYNC230, PTH123, SIM115 - a pipe
        self._reader = threading.Thread(target=self._read, args=(said,), daemon=True)
        self._reader.start()
        with open(writing, "w") as stderr:  # noqa: ASYNC230, PTH123 - the process has its own copy
            process = stdio_client(self._command, stderr)
            return await self._stack.enter_async_context(process)

    async def last_words(self) -> str:
        """Return the last line that the process has written to stderr, empty if there is none."""
        if self._reader is not None:
            await anyio.to_thread.run_sync(self._reader.join, SOON)
        return self._said[-1] if self._said else ""

    def _read(self, said: IO[str]) -> None:
        with said:
            while line := said.readline(LONGEST_LINE):
                if text := line.strip():
                    self._said.append(text)
                    logger.debug("%s: %s", self._command.command, text)
