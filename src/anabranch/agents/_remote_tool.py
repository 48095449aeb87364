"""A tool of a running MCP server as a tool of an agent.

The server runs the tool. What it asks becomes questions of the conversation, what it reports the
agent's notices, and its samples are answered by the agent's model within the limits of the turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b

import mcp_types as types
from pydantic import ValidationError

from anabranch._aio import run_until
from anabranch._engine import Answer
from anabranch.agents._agent_tools import Asked, Outcome, ToolUse
from anabranch.agents._remote_call import ParkedCalls, RemoteCall
from anabranch.agents._remote_state import CallState, RemoteLimits
from anabranch.errors import ToolError
from anabranch.mcp._eras import RoundOfAnswers
from anabranch.mcp._tool_server import ToolServer
from anabranch.messages import ToolSpec

_GONE = (
    "The server has waited for this answer over a connection that has ended, so the answer cannot"
    " reach it. Call the tool again."
)


class RemoteTool:
    """A tool of an agent that calls ``tool`` of ``server``.

    Args:
        server: runs it.
        tool: as the server lists it.
        spec: as a model is sent it.
        parked: the calls that wait in this process.
        limits: of each call.
    """

    placeholder: str | None = None

    def __init__(
        self,
        server: ToolServer,
        tool: types.Tool,
        spec: ToolSpec,
        parked: ParkedCalls,
        limits: RemoteLimits,
    ) -> None:
        self.tool = tool
        self.spec: ToolSpec = spec
        self._server = server
        self._parked = parked
        self._limits = limits

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        return self.spec.name

    async def use(self, here: ToolUse) -> Outcome | Asked:
        """Call the tool, or go on with a call whose questions are answered.

        Raises:
            ToolError: if the server cannot be reached, or has refused the call; or it waits for the
                answers no more; or the call's time is over.
        """
        answered = here.answered
        if answered is None:
            return await self._until(here, self._call(here), {})
        state = self._loaded(answered.state)
        if self._is_over(here, state):
            if state.parked is not None and (left := self._parked.take(state.parked)) is not None:
                await left.cancel()
            raise self._late(here)
        if state.parked is None:
            before = state, state.answered(answered.answers)
            return await self._until(here, self._call(here, before), {})
        waiting = self._parked.take(state.parked)
        if waiting is None:
            raise ToolError(_GONE)
        return await self._until(here, waiting, answered.answers)

    def _call(
        self, here: ToolUse, before: tuple[CallState, RoundOfAnswers] | None = None
    ) -> RemoteCall:
        return RemoteCall(self._server, self.tool, _key(here), here, self._limits, before)

    async def _until(
        self, here: ToolUse, call: RemoteCall, answers: Mapping[str, Answer]
    ) -> Outcome | Asked:
        """Continue a call until it ends, asks, or reaches the time limit of a tool's call.

        What it asks can be answered until then.

        Raises:
            ToolError: if the call's time is over; the call is cancelled.
        """
        ends: list[Outcome | Asked] = []

        async def go_on() -> None:
            ends.append(await call.go_on(here, answers, self._parked))

        dependencies = here.timeline.dependencies
        timeout = dependencies.tool_limits.timeout
        until = None if timeout is None else call.begun + timeout
        await run_until(dependencies.clock, until, go_on())
        if not ends:
            raise self._late(here)
        return replace(ends[0], until=until) if isinstance(ends[0], Asked) else ends[0]

    def _is_over(self, here: ToolUse, state: CallState) -> bool:
        dependencies = here.timeline.dependencies
        timeout = dependencies.tool_limits.timeout
        if timeout is None or state.begun is None:
            return False
        return state.begun + timeout <= dependencies.clock.now()

    def _late(self, here: ToolUse) -> ToolError:
        timeout = here.timeline.dependencies.tool_limits.timeout
        return ToolError(
            f"{self.name!r} has not ended within {timeout:g} s, and was cancelled. What it has done"
            " until then is not known."
        )

    def _loaded(self, text: str) -> CallState:
        try:
            state = CallState.model_validate_json(text)
        except ValidationError:
            raise ToolError("What this call has asked cannot be answered any more.") from None
        if (state.server, state.tool) != (self._server.place, self.tool.name):
            raise ToolError(f"{self.name!r} is now another tool than the one that asked.")
        return state


def _key(here: ToolUse) -> str:
    """Return the idempotency key of a tool use: the same in every request for it."""
    place = f"{here.caller.id}/{here.block.id}"
    return blake2b(place.encode("utf-8", "surrogatepass"), digest_size=18).hexdigest()
