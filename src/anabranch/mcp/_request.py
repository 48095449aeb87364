"""One MCP request, the same for every host: its caller, era, answers, progress and notices.

``logging/setLevel`` brings the ``logging`` capability, which revisions up to 2025-11-25 demand of
every server that sends log messages. Since 2026-07-28 each request has a level.
"""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, isfinite, nextafter
from typing import Any, Final, cast, get_args

import mcp_types as types
from mcp import MCPDeprecationWarning
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.request_state import authenticated_principal
from mcp.server.session import ServerSession
from mcp_types.version import is_version_at_least
from pydantic import BaseModel

from anabranch._asking import Capabilities
from anabranch._engine import Journal, Notice, Sink
from anabranch._text import encodable
from anabranch.errors import IdempotencyKeyError
from anabranch.mcp._protocol import KEY_META, STEP, capabilities_of
from anabranch.messages import LogLevel

MODERN = "2026-07-28"


@lru_cache(maxsize=64)
def _is_modern(version: str) -> bool:
    return is_version_at_least(version, MODERN)


@dataclass(slots=True)
class Progress:
    """The progress numbers of one request, which must grow, as the protocol requires.

    Concurrent branches count separately, so their numbers may repeat or decrease. A sender holds
    ``sending``, so that the numbers arrive in order.
    """

    last: float | None = None
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    def next(self, wanted: float | None) -> float:
        """Return ``wanted`` if it exceeds the last number, otherwise the next possible number."""
        last = self.last
        if wanted is None or not _is_finite(wanted):
            wanted = last or 0.0
        if last is not None and wanted <= last:
            wanted = max(last + STEP, nextafter(last, inf))
        self.last = wanted
        return wanted


def _is_finite(number: float) -> bool:
    try:
        return isfinite(number)
    except OverflowError:  # an integer that no float holds
        return False


HEADER = "Idempotency-Key"

_KEY = re.compile("[!-~]{1,255}")


@dataclass(frozen=True, slots=True)
class McpRequest:
    """A request to an MCP server; ``context`` is the SDK's, ``state`` the unsealed ``requestState``."""

    context: ServerRequestContext[Any, Any]
    state: str | None = None
    responses: Mapping[str, BaseModel] | None = None
    progress: Progress = field(default_factory=Progress, compare=False)

    @property
    def is_modern(self) -> bool:
        return _is_modern(self.context.protocol_version)

    @property
    def is_http(self) -> bool:
        return self.context.request is not None

    @property
    def session(self) -> ServerSession:
        return self.context.session

    @property
    def request_id(self) -> str:
        return str(self.context.request_id)

    @property
    def called(self) -> str:
        """The name of the tool as the client sees it."""
        return str((self.context.params or {}).get("name", ""))

    @property
    def principal(self) -> str:
        """The authenticated caller; empty without authentication."""
        return authenticated_principal(self.context) or ""

    @property
    def idempotency_key(self) -> str:
        headers: Mapping[str, str] = getattr(self.context.request, "headers", None) or {}
        meta = cast("Mapping[str, object]", self.context.meta or {})
        given: list[object] = []
        if (header := headers.get(HEADER)) is not None:
            # The draft of the header has the value in quotes, which many clients and services omit.
            is_quoted = len(header) > 1 and header[0] == header[-1] == '"'
            given.append(header[1:-1] if is_quoted else header)
        if KEY_META in meta:
            given.append(meta[KEY_META])
        for key in given:
            if not (isinstance(key, str) and _KEY.fullmatch(key)):
                raise IdempotencyKeyError(
                    "it must be 1 to 255 visible ASCII characters, without spaces"
                )
            if key != given[0]:
                raise IdempotencyKeyError("the header and _meta have different keys; send one")
        return str(given[0]) if given else ""

    @property
    def unreachable(self) -> bool:
        """Whether the connection cannot carry questions, as in some sessions of the handshake era."""
        return not (self.is_modern or self.session.can_send_request)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that the client has declared; none if the connection carries no questions."""
        return capabilities_of(None if self.unreachable else self.session.client_capabilities)

    def wants(self, level: LogLevel) -> bool:
        """Return whether the client wants log messages of ``level``; a subclass may override."""
        least: LogLevel = _connection_state(self.session).get(LEAST, LEVELS[0])
        return at_least(level, least)

    async def report_progress(
        self, progress: float | None, total: float | None = None, message: str | None = None
    ) -> None:
        async with self.progress.sending:
            await self.session.report_progress(self.progress.next(progress), total, message)

    def sink(self, journal: Journal) -> Sink:

        async def deliver(notice: Notice) -> None:
            message = encodable(notice.message)
            if notice.level is None:
                progress = journal.progressed if notice.progress is None else notice.progress
                await self.report_progress(progress, notice.total, message)
                return
            if not self.wants(notice.level):
                return
            with warnings.catch_warnings():
                # Deprecated by SEP-2577 without a successor. The SDK drops the message if the
                # client has not asked for it.
                warnings.simplefilter("ignore", MCPDeprecationWarning)
                sending = self.session.send_log_message(  # pyright: ignore[reportDeprecated]
                    notice.level, message, related_request_id=self.request_id
                )
            await sending

        return deliver


METHOD: Final = "logging/setLevel"
LEVELS: Final[tuple[LogLevel, ...]] = get_args(LogLevel)
"""All levels, the least severe first."""
LEAST: Final = "anabranch/logLevel"
"""The key of the least wanted level in a connection's state."""


def offer_log_level(server: MCPServer[Any]) -> None:
    """Let clients of ``server`` choose a level, unless the server handles the method itself."""
    # MCPServer cannot add a method publicly; the SDK's documentation refers to the inner server.
    inner = server._lowlevel_server  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    if inner.get_request_handler(METHOD) is None:
        inner.add_request_handler(METHOD, types.SetLevelRequestParams, _set_level)


async def _set_level(
    context: ServerRequestContext[Any, Any], params: types.SetLevelRequestParams
) -> types.EmptyResult:
    _connection_state(context.session)[LEAST] = params.level
    return types.EmptyResult()


def at_least(level: str, least: str) -> bool:
    return LEVELS.index(level) >= LEVELS.index(least)


def _connection_state(session: ServerSession) -> dict[str, Any]:
    """Return a dict that lasts as long as the connection; a session lasts for one request."""
    return session._connection.state  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
