"""The service of all tools that a server got together: it runs their calls, and makes handles.

A *handle* is the sealed name of an unfinished call, bound to its tool, arguments, caller and server.
With a store, a handle is short enough for a model to copy.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from anabranch._asking import Capabilities, Host, Sampler
from anabranch._durable import UNDONE, CallService, Job, SagaClaims, Sealer
from anabranch._engine import Journal
from anabranch.errors import CallExpiredError, InvalidTokenError
from anabranch.mcp._ask_page import AskLinks
from anabranch.mcp._eras import Heartbeat
from anabranch.mcp._protocol import TAKES_KEY_META
from anabranch.mcp._request import McpRequest
from anabranch.tool import Tool


@dataclass(frozen=True, slots=True)
class OpenCall:
    tool: Tool[Any]
    arguments: Mapping[str, Any]
    journal: Journal


@dataclass(frozen=True, slots=True)
class Handles:
    calls: CallService
    tools: Mapping[str, Tool[Any]]
    sealer: Sealer

    async def make(self, call: OpenCall, state: str, principal: str) -> str:
        claims = SagaClaims(tool=call.tool.name, state=await self.calls.stored.shortened(state))
        if self.calls.durability is None:
            claims.arguments = json.loads(call.tool.to_json(call.arguments))
        return self.sealer.seal(claims, principal)

    async def open(self, handle: str, principal: str) -> OpenCall:
        """Return the call of ``handle``, or raise ``InvalidTokenError`` or ``CallExpiredError``."""
        claims = self.sealer.open(handle, principal)
        journal = await self.calls.stored.load(claims.state)
        arguments: dict[str, Any] = dict(claims.arguments)
        if self.calls.durability is not None:
            record = await self.calls.stored.find(journal.line, principal)
            if record is None:
                raise InvalidTokenError
            if record.state in UNDONE:
                raise CallExpiredError(journal.line)
            arguments = json.loads(record.arguments)
        if claims.tool not in self.tools:
            raise InvalidTokenError
        tool = self.tools[claims.tool]
        return OpenCall(tool, tool.validate(arguments), journal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The shared parts of all tools of one installation.

    ``asks_by_result`` lists questions that a client cannot show in a result; ``links`` makes links to
    their pages. ``on_call`` runs before each call, or round.
    """

    calls: CallService
    handles: Handles
    sampler: Sampler | None
    prefer_client: bool
    heartbeat: float | None
    continues: bool
    asks_by_result: bool
    links: AskLinks | None
    on_call: Callable[[], None]
    max_request: int

    def by_rounds(self, request: McpRequest) -> bool:
        """Return whether a call runs by rounds; a live call waits in the process for answers."""
        return request.is_modern or (
            self.asks_by_result and _widened(request.capabilities) != request.capabilities
        )

    def heartbeat_of(self, request: McpRequest) -> Heartbeat:
        return Heartbeat(request, self.heartbeat, self.calls.runtime.clock)

    @property
    def leaves_unfinished(self) -> bool:
        return self.continues or self.asks_by_result

    @property
    def tool_meta(self) -> dict[str, Any] | None:
        """The ``_meta`` of each listed tool: with a store, that first requests may be repeated."""
        return None if self.calls.durability is None else {TAKES_KEY_META: True}

    def new(self, tool: Tool[Any], arguments: Mapping[str, Any], request: McpRequest) -> Journal:
        """Return the journal of the call that ``request`` begins, or repeats by its key."""
        key = request.idempotency_key
        return (
            self.calls.keyed(key, request.principal, tool, arguments) if key else self.calls.new()
        )

    def job(
        self, call: OpenCall, request: McpRequest, capabilities: Capabilities | None = None
    ) -> Job:
        """Return the job of ``request``, by default with the client's capabilities."""
        self.on_call()
        offered = request.capabilities if capabilities is None else capabilities
        if capabilities is None and self.asks_by_result:
            offered = _widened(offered)
        host = Host(
            offered,
            self.sampler,
            unreachable=capabilities is None and request.unreachable,
            prefer_client=self.prefer_client,
            principal=request.principal,
        )
        return Job(
            call.tool,
            call.arguments,
            host,
            request.sink(call.journal),
            request.principal,
            max_request=self.max_request if request.is_http else None,
        )


@lru_cache
def _widened(capabilities: Capabilities) -> Capabilities:
    """Return ``capabilities`` with forms and URLs, which a tool's result can ask for."""
    return replace(capabilities, elicitation=True, elicitation_url=True)
