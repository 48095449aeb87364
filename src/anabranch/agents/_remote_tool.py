"""A tool of a running MCP server as a tool of an agent.

The server runs the tool. What it reports becomes the agent's notices, and its samples are answered
by the agent's model within the limits of the turn.
"""

from __future__ import annotations

from hashlib import blake2b

import mcp_types as types

from anabranch._asking.answerer import Absent, AnswerError
from anabranch._engine import Notice
from anabranch.agents._agent_tools import Outcome, ToolUse
from anabranch.agents._events import ToolNoticed
from anabranch.agents._result_blocks import result_blocks
from anabranch.agents._turn_limits import TurnLimitError
from anabranch.errors import ToolError
from anabranch.mcp._client import MAX_ROUNDS
from anabranch.mcp._tool_server import ToolServer, answer_round
from anabranch.messages import (
    LogLevel,
    ResultBlock,
    SampleReply,
    SampleRequest,
    TextBlock,
    ToolSpec,
    text_of,
)

__all__ = ["RemoteTool"]


class RemoteTool:
    """An :class:`~anabranch.agents.AgentTool` that calls ``tool`` of ``server``.

    Args:
        server: runs it.
        tool: as the server lists it.
        spec: as a model is sent it.
    """

    placeholder: str | None = None

    def __init__(self, server: ToolServer, tool: types.Tool, spec: ToolSpec) -> None:
        self.tool = tool
        self.spec: ToolSpec = spec
        self._server = server

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        return self.spec.name

    async def use(self, here: ToolUse) -> Outcome:
        """Call the tool.

        Raises:
            ToolError: the server cannot be reached, or has refused the call.
        """
        answerer, answers = _CallAnswerer(here), None
        for _ in range(MAX_ROUNDS):
            result = await self._server.call(
                self.tool.name,
                here.block.input,
                answerer,
                owner=here.timeline.thread.id,
                key=_key(here),
                answers=answers,
            )
            if isinstance(result, types.CallToolResult):
                return _outcome(result)
            answers = await answer_round(result, answerer)
        raise ToolError(f"The tool {self.name!r} has asked in more than {MAX_ROUNDS} rounds.")


class _CallAnswerer(Absent):
    """Answers one call's samples, and passes its notices on."""

    def __init__(self, here: ToolUse) -> None:
        self._here = here

    async def sample(self, request: SampleRequest, /, *, step_id: str) -> SampleReply:
        """Let the agent's model answer.

        Raises:
            AnswerError: a limit of the turn is used up.
        """
        del step_id
        try:
            return await self._here.sample(request)
        except TurnLimitError as refusal:
            raise AnswerError(str(refusal)) from None

    async def log(self, level: LogLevel, message: str, /) -> None:
        """Send a log message to the agent's listener."""
        await self._emit(Notice(message, level))

    async def notify(self, message: str, progress: float | None, total: float | None, /) -> None:
        """Send a progress message to the agent's listener."""
        await self._emit(Notice(message, None, progress, total))

    async def _emit(self, notice: Notice) -> None:
        here = self._here
        await here.emit(ToolNoticed(here.caller.id, here.block, notice))


def _key(here: ToolUse) -> str:
    """Return the idempotency key of a tool use: the same whenever it is sent."""
    place = f"{here.caller.id}/{here.block.id}"
    return blake2b(place.encode("utf-8", "surrogatepass"), digest_size=18).hexdigest()


def _outcome(result: types.CallToolResult) -> Outcome:
    """Return a result as a model reads it.

    A server repeats structured content as text, for models; it is used where a server does not.
    """
    blocks = tuple(_block(block) for block in result.content)
    blocks = blocks or result_blocks(result.structured_content)
    return Outcome(text_of(blocks), bool(result.is_error), blocks)


def _block(block: types.ContentBlock) -> ResultBlock:
    match block:
        case types.TextContent():
            return TextBlock(text=block.text)
        case types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return TextBlock(text=text)
        case types.ResourceLink():
            said = "".join(f"\n{each}" for each in (block.title, block.description) if each)
            return TextBlock(text=f"{block.name}: {block.uri}{said}")
        case _:
            return result_blocks(block)[0]
