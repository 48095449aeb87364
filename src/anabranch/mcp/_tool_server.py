"""A running server whose tools are called one by one: its connection, and its present tools.

A lost connection is made again, once for each request; only a request that cannot have run, or has
an idempotency key, is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import mcp_types as types
from mcp import Client, MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from anabranch._asking import Answerer, Capabilities
from anabranch._text import encodable
from anabranch.errors import ToolError
from anabranch.mcp._addressing import Addressed, CallInFlight
from anabranch.mcp._client import Connectable, Era, connect, is_heartbeat
from anabranch.mcp._eras import RoundOfAnswers
from anabranch.mcp._tool_link import Link, ToolList
from anabranch.mcp._transports import Started, WithHeaders, causes, is_lost, keyed_meta

TERMINATED: Final = ("Session terminated", "Session not found")
"""The messages for a session that the server no longer knows: of the SDK's client, and of servers."""
LONGEST_REASON: Final = 4_000
"""Maximum characters of a server's reason for a refusal."""


class ToolServer:
    """One running MCP server, whose tools an agent calls; ``place`` names the server in errors."""

    def __init__(
        self,
        target: Callable[[], Connectable],
        place: str,
        capabilities: Capabilities,
        era: Era = "auto",
    ) -> None:
        self.place = place
        self.tools: ToolList = ToolList(place)
        self._target = target
        self._era: Era = era
        self._addressed = Addressed(capabilities)
        self._links: list[Link] = []
        """The present connection is the last; earlier ones have unanswered requests."""
        self._connecting = asyncio.Lock()

    async def open(self) -> str:
        info = (await self._connected()).client.server_info
        return info.name if info is not None else ""

    async def is_modern(self) -> bool:
        """Return whether the server asks by ending a request, and holds no connection."""
        return (await self._connected()).client.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def close(self) -> None:
        for link in self._links:
            await link.close()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        answerer: Answerer,
        *,
        owner: str,
        key: str,
        answers: RoundOfAnswers | None = None,
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Run one round of a call; return its result, or its questions before the next round.

        In the handshake era, ``answerer`` also answers the call's questions. Calls of the same ``owner``
        may get each other's questions, if the server does not name a question's call.
        """
        repeated = False
        while True:
            link = await self._connected()
            call = CallInFlight(answerer, owner)
            try:
                with link.used():
                    async with self._addressed.calling(call):
                        return await self._round(link.client, call, name, arguments, key, answers)
            except (MCPError, ValidationError, RuntimeError) as error:
                terminated = isinstance(error, MCPError) and error.message in TERMINATED
                lost = terminated or not link.is_usable or is_lost(error)
                if lost:
                    link.retire()
                if not repeated and (terminated or (lost and self.tools.takes_key(name))):
                    repeated = True
                    continue
                raise self._refusal(error, name, lost=lost) from error

    async def _round(
        self,
        client: Client,
        call: CallInFlight,
        name: str,
        arguments: Mapping[str, Any],
        key: str,
        answers: RoundOfAnswers | None,
    ) -> types.CallToolResult | types.InputRequiredResult:
        async def notify(progress: float, total: float | None, message: str | None) -> None:
            if not is_heartbeat(progress, total, message):
                call.notify(message or "", progress, total)

        # The client's own ``call_tool`` drives all rounds, and cannot stop between two.
        return await client.session.call_tool(
            encodable(name),
            encodable(dict(arguments)),
            progress_callback=notify,
            input_responses=None if answers is None else dict(answers.responses),
            request_state=None if answers is None else answers.state,
            meta=keyed_meta(key) if answers is None else None,
            allow_input_required=True,
        )

    def _refusal(self, error: Exception, name: str, *, lost: bool) -> ToolError:
        if lost:
            return ToolError(
                f"The connection to {self.place} was lost while {name!r} ran, and {name!r} may have"
                " finished. Check its effects before you call it again."
            )
        if isinstance(error, MCPError):
            return ToolError(f"{self.place} has refused the call: {error.message[:LONGEST_REASON]}")
        return ToolError(f"{self.place} has answered with something that is not MCP.")

    async def _connected(self) -> Link:
        async with self._connecting:
            if not self._links or not self._links[-1].is_usable:
                target = self._target()
                client = connect(target, self._addressed, era=self._era, checks_results=False)
                client.message_handler = self.tools.on_message
                link = Link(client, self.tools)
                try:
                    await link.open()
                except Exception as error:
                    raise ToolError(await self._unreachable(target, error)) from error
                self._links = [*(each for each in self._links if each.is_open), link]
            return self._links[-1]

    async def _unreachable(self, target: Connectable, error: Exception) -> str:
        said = await target.last_words() if isinstance(target, Started | WithHeaders) else ""
        reason = next((text for each in causes(error) if (text := _reason(each))), "")
        if said and isinstance(target, WithHeaders):
            reason = ""  # the SDK's general message adds nothing
        reason = f"{reason}: {said}" if reason and said else reason or said or type(error).__name__
        shown = encodable(reason[:LONGEST_REASON]).rstrip(".")
        return f"{self.place} cannot be used: {shown}."


def _reason(cause: BaseException) -> str:
    match cause:
        case ToolError():
            return str(cause)
        case MCPError() if is_lost(cause):
            return "it has ended the connection"
        case MCPError():
            return cause.message
        case ValidationError():
            return "it answers with something that is not MCP"
        case OSError():
            return cause.strerror or str(cause)
        case _:
            return str(cause)
