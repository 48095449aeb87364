"""One request in the view of any MCP host: its caller, era, answers, progress and notices."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, isfinite, nextafter
from typing import Any

from mcp import MCPDeprecationWarning
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import authenticated_principal
from mcp.server.session import ServerSession
from mcp_types.version import is_version_at_least
from pydantic import BaseModel

from anabranch._asking import Capabilities
from anabranch._engine import Journal, Notice, Sink
from anabranch._text import encodable
from anabranch.mcp._handles import given_key
from anabranch.mcp._log_level import is_wanted
from anabranch.mcp._protocol import capabilities_of
from anabranch.messages import LogLevel

MODERN = "2026-07-28"


@lru_cache(maxsize=64)
def _is_modern(version: str) -> bool:
    return is_version_at_least(version, MODERN)


STEP = 2.0**-20
"""The minimum step between two progress numbers: less than any progress of a tool."""


@dataclass(slots=True)
class Progress:
    """The progress numbers of one request, which must grow, as the protocol requires.

    Concurrent branches count separately, so their numbers may repeat or decrease.

    Attributes:
        last: the number that was sent last; ``None`` before the first.
        sending: held while a notification is sent, so that numbers arrive in order.
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


@dataclass(frozen=True, slots=True)
class McpRequest:
    """A request to an MCP server, independent of its host.

    Attributes:
        context: the SDK's context, below the host's.
        state: the unsealed ``requestState``; ``None`` in the first round.
        responses: the answers in the request, by step.
        progress: the progress numbers.
    """

    context: ServerRequestContext[Any, Any]
    state: str | None = None
    responses: Mapping[str, BaseModel] | None = None
    progress: Progress = field(default_factory=Progress, compare=False)

    @property
    def is_modern(self) -> bool:
        """Whether the client speaks a stateless revision, 2026-07-28 or later."""
        return _is_modern(self.context.protocol_version)

    @property
    def is_http(self) -> bool:
        """Whether the request came over HTTP, which limits its size."""
        return self.context.request is not None

    @property
    def session(self) -> ServerSession:
        """The connection to the client."""
        return self.context.session

    @property
    def request_id(self) -> str:
        """The JSON-RPC id of the request."""
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
        """The idempotency key of a first request; empty if the client has given none.

        Raises:
            IdempotencyKeyError: if the key is malformed.
        """
        return given_key(self.context)

    @property
    def unreachable(self) -> bool:
        """Whether the connection cannot carry questions, as in some sessions of the handshake era."""
        return not (self.is_modern or self.session.can_send_request)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that the client has declared; none if the connection carries no questions."""
        return capabilities_of(None if self.unreachable else self.session.client_capabilities)

    def wants(self, level: LogLevel) -> bool:
        """Return whether the client wants log messages of ``level``; a host may decide otherwise."""
        return is_wanted(self.session, level)

    async def report_progress(
        self, progress: float | None, total: float | None = None, message: str | None = None
    ) -> None:
        """Send a progress notification, if the client has given a token for it.

        A number that does not exceed the last one, or ``None``, becomes the next possible number.
        """
        async with self.progress.sending:
            await self.session.report_progress(self.progress.next(progress), total, message)

    def sink(self, journal: Journal) -> Sink:
        """Return a function that sends the notices of the call of ``journal`` to the client."""

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
