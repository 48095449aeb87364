"""Connections to servers for the SDK's client, and requests that are repeated over a new connection.

A client repeats a first request only under an idempotency key, and only if the tool takes such keys:
then the server stores the call, and nothing happens twice.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import threading
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import IO, Any, Final, TypeVar, cast

import anyio.to_thread
import httpx2
import mcp_types as types
from mcp import MCPError, StdioServerParameters
from mcp.client import Transport
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel

from anabranch._asking import Answerer, Forwarding
from anabranch._text import printable_line
from anabranch.mcp._protocol import KEY_META, TAKES_KEY_META
from anabranch.messages import ElicitReply, ElicitRequest, SampleReply, SampleRequest, UrlRequest

logger: logging.Logger = logging.getLogger("anabranch.mcp")

R = TypeVar("R")

COMMAND: Final = "command:"
UNAUTHORIZED: Final = 401
REFUSALS: Final = {400, UNAUTHORIZED, 403}
"""HTTP statuses with which a server asks for a header."""
LONGEST_REFUSAL: Final = 64 * 1024
LONGEST_SHOWN: Final = 200

_HEADER: Final = re.compile(r"\b(?:X-[A-Za-z0-9-]{1,60}|Api-Key|Authorization)\b", re.IGNORECASE)
_LENGTH: Final = re.compile("[0-9]{1,6}")
_TIMEOUT: Final = httpx2.Timeout(30, read=300)  # the SDK client's values
LONGEST_LINE: Final = 2_000
SOON: Final = 1.0
"""Seconds to wait for the last words of a process that has ended."""


def command_of(server: str, env: Mapping[str, str] | None = None) -> StdioServerParameters:
    """Return the command that starts the server ``command:…``, with the variables ``env``.

    The server is a foreign program, and inherits only the variables of ``get_default_environment``.
    """
    try:
        words = shlex.split(server.removeprefix(COMMAND))
    except ValueError as error:
        raise ValueError(f"{server!r} cannot be read as a command: {error}.") from error
    if not words:
        raise ValueError("Write the command that starts the server after command:.")
    command, *arguments = words
    return StdioServerParameters(
        command=command, args=arguments, env=dict(env or {}), encoding_error_handler="replace"
    )


class _Reopened(Transport):
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
    """A connection to the server at ``url``. No other origin receives the headers."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        super().__init__()
        self._url = url
        self._headers = httpx2.Headers(headers)
        self._refusal = ""

    async def __aenter__(self) -> Any:  # noqa: ANN401 - the SDK names its streams privately
        self._refusal = ""
        hooks = {"response": [self._hear]}
        http = httpx2.AsyncClient(headers=self._headers, timeout=_TIMEOUT, event_hooks=hooks)
        client = await self._stack.enter_async_context(http)
        connection = streamable_http_client(self._url, http_client=client)
        return await self._stack.enter_async_context(connection)

    async def last_words(self) -> str:
        """Return the server's refusal of a request, with the header that it wants, or ""."""
        return self._refusal

    async def _hear(self, response: httpx2.Response) -> None:
        """Read the text of a refusal, which the SDK's client does not report.

        No call depends on a request other than a POST, such as the one that ends a session.
        """
        if response.request.method != "POST":
            return
        if response.is_success:
            self._refusal = ""  # the refusal was for another era's request
        if response.status_code not in REFUSALS or self._refusal:
            return
        declared = _LENGTH.fullmatch(response.headers.get("content-length", ""))
        packed = "content-encoding" in response.headers  # the unpacked length is unknown
        said = ""
        if declared and not packed and int(declared[0]) <= LONGEST_REFUSAL:
            await response.aread()
            said = response.text.strip()
        demand = response.headers.get("www-authenticate", "")
        about = printable_line(said or demand)[:LONGEST_SHOWN]
        shown = f"it answers {response.status_code} {response.reason_phrase}".rstrip()
        shown += f" ({about})" if about else ""
        self._refusal = shown + self._way_out(response.status_code, f"{demand} {said}")

    def _way_out(self, status: int, said: str) -> str:
        """Return a text about the header that the server wants, and how to send it, or ""."""
        named = _HEADER.search(said)
        name = named[0] if named else "Authorization" if status == UNAUTHORIZED else ""
        if name in self._headers:
            return f", and does not accept the header {name} that it is given"
        value = "Bearer …" if name.lower() == "authorization" else "…"
        given = f". Give it the header: --header '{name}: {value}', in a program headers="
        return given if name else ""


class Started(_Reopened):
    """A connection that starts a process, and logs what the process writes to stderr.

    So the process cannot control the terminal of this process.
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
        if self._reader is not None:
            await anyio.to_thread.run_sync(self._reader.join, SOON)
        return self._said[-1] if self._said else ""

    def _read(self, said: IO[str]) -> None:
        with said:
            while line := said.readline(LONGEST_LINE):
                if text := line.strip():
                    self._said.append(text)
                    logger.debug("%s: %s", self._command.command, text)


PAUSES: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each repetition of a request; after the last, the client gives the connection up."""


def new_key() -> str:
    return str(uuid.uuid4())


def keyed_meta(key: str) -> types.RequestParamsMeta:
    return cast("types.RequestParamsMeta", {KEY_META: key})


def takes_key(tool: types.Tool) -> bool:
    return (tool.meta or {}).get(TAKES_KEY_META) is True


def is_lost(error: BaseException | None) -> bool:
    """Return whether ``error`` reports a connection that was lost, or could not be made."""
    return any(
        cause.error.code == types.CONNECTION_CLOSED
        if isinstance(cause, MCPError)
        else isinstance(cause, OSError) or type(cause).__module__.startswith("http")
        for cause in causes(error)
    )


def causes(error: BaseException | None) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from causes(inner)
    elif error is not None:
        yield error


class Remembering(Forwarding):
    """An ``Answerer`` that asks each question once, since a repeated call repeats its questions."""

    def __init__(self, answerer: Answerer) -> None:
        super().__init__(answerer)
        self._answers: dict[tuple[str, str], Any] = {}

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        return await self._once(super().sample, request, step_id)

    async def elicit(self, request: ElicitRequest | UrlRequest, /, *, step_id: str) -> ElicitReply:
        return await self._once(super().elicit, request, step_id)

    async def _once(self, ask: Callable[..., Awaitable[R]], request: BaseModel, step_id: str) -> R:
        asked = (step_id, request.model_dump_json())
        if asked not in self._answers or not step_id:
            self._answers[asked] = await ask(request, step_id=step_id)
        reply: R = self._answers[asked]
        return reply
