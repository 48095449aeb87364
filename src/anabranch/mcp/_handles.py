"""Handles: sealed names of unfinished calls, which a client passes to another tool; and idempotency keys.

A handle is bound to its tool, arguments, caller and server, and expires, like a state. It holds the
state itself or, with a store, a reference to it, which is short enough for a model to copy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from mcp.server.context import ServerRequestContext

from anabranch._durable.call_states import UNDONE
from anabranch._durable.service import CallService
from anabranch._engine import Journal
from anabranch._sealing import SagaClaims, Sealer
from anabranch.errors import CallExpiredError, IdempotencyKeyError, InvalidTokenError
from anabranch.tool import Tool

KEY_META: Final = "anabranch/idempotency-key"
"""The ``_meta`` key of a request's idempotency key."""

TAKES_KEY_META: Final = "anabranch/takes-idempotency-key"
"""The ``_meta`` key of a tool that repeats the reply of a keyed request.

It differs from the request's key, since some clients send a tool's ``_meta`` with each call of the tool.
"""

HEADER = "Idempotency-Key"

_KEY = re.compile("[!-~]{1,255}")


def given_key(context: ServerRequestContext[Any, Any]) -> str:
    """Return the idempotency key of a request, or "" without one.

    Raises:
        IdempotencyKeyError: if the key is malformed, or header and ``_meta`` differ.
    """
    headers: Mapping[str, str] = getattr(context.request, "headers", None) or {}
    meta = cast("Mapping[str, object]", context.meta or {})
    given: list[object] = []
    if (header := headers.get(HEADER)) is not None:
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
            raise IdempotencyKeyError(
                "the one in the header differs from the one in _meta; give one"
            )
    return str(given[0]) if given else ""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that a request continues: its tool, its arguments, and its state."""

    tool: Tool[Any]
    arguments: Mapping[str, Any]
    journal: Journal


@dataclass(frozen=True, slots=True)
class Handles:
    """Makes and opens the handles of one installation.

    Attributes:
        calls: runs the calls.
        tools: the tools, by name.
        sealer: seals the handles.
    """

    calls: CallService
    tools: Mapping[str, Tool[Any]]
    sealer: Sealer

    async def make(self, call: OpenCall, state: str, principal: str) -> str:
        """Return the handle of ``call``, whose last round has handed out ``state``.

        Raises:
            ToolError: if the store does not answer.
        """
        claims = SagaClaims(tool=call.tool.name, state=await self.calls.stored.shortened(state))
        if self.calls.durability is None:
            claims.arguments = json.loads(call.tool.to_json(call.arguments))
        return self.sealer.seal(claims, principal)

    async def open(self, handle: str, principal: str) -> OpenCall:
        """Return the call of ``handle``.

        Raises:
            InvalidTokenError: if the handle has expired, or is not of this server for this caller.
            CallExpiredError: if the call has expired.
            ToolError: if the store does not answer.
        """
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
