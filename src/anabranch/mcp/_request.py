"""One request as any MCP host sees it: who calls, in which era, with which answers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from mcp import MCPDeprecationWarning
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import authenticated_principal
from mcp.server.session import ServerSession
from mcp_types.version import is_version_at_least
from pydantic import BaseModel

from anabranch._asking.host import Capabilities
from anabranch._encodable import encodable
from anabranch._engine import Journal, Notice, Sink
from anabranch.mcp._idempotency import given_key
from anabranch.mcp._log_level import is_wanted
from anabranch.mcp._protocol import capabilities_of
from anabranch.messages import LogLevel

__all__ = ["McpRequest"]

MODERN = "2026-07-28"


@lru_cache(maxsize=64)
def _is_modern(version: str) -> bool:
    return is_version_at_least(version, MODERN)


@dataclass(slots=True)
class Progress:
    """How far a request was last reported to be."""

    last: float = 0.0


@dataclass(frozen=True, slots=True)
class McpRequest:
    """A request to an MCP server, independent of its host.

    Attributes:
        context: the SDK's context, below that of any host.
        state: the ``requestState`` of the request, unsealed; ``None`` at the first round.
        responses: the answers that came with it, by step.
        progress: how far it was last reported to be.
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
        """What a first request is repeated under; empty if the client has given none.

        Raises:
            IdempotencyKeyError: it is malformed.
        """
        return given_key(self.context)

    @property
    def unreachable(self) -> bool:
        """Whether the connection carries no questions: that of some sessions of the handshake era."""
        return not (self.is_modern or self.session.can_send_request)

    @property
    def capabilities(self) -> Capabilities:
        """What the client can be asked: what it has declared, and the connection carries."""
        return capabilities_of(None if self.unreachable else self.session.client_capabilities)

    def wants(self, level: LogLevel) -> bool:
        """Whether the client wants log messages of ``level``; a host may have its own record."""
        return is_wanted(self.session, level)

    async def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Send a progress notification, if the client has given a token for it."""
        self.progress.last = progress
        await self.session.report_progress(progress, total, message)

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
