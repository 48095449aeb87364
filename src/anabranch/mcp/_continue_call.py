"""The tool ``continue_call``: continues a call that needs more rounds than its client allows.

With a store, the questions of such a call are not lost: the reply after ten rounds is an ordinary result that
names the call, and ``continue_call`` asks the questions that are open.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from anabranch._parameters import Parameters
from anabranch.errors import InvalidTokenError, ToolError
from anabranch.mcp._chains import CONTINUE_CALL, is_marked, unmarked
from anabranch.mcp._request import McpRequest
from anabranch.mcp._rounds import ROUND_REPLIES
from anabranch.mcp._serving import Service, in_chain, run_live, run_round
from anabranch.tool import Tool, ToolAnnotations

__all__ = ["ContinueCall"]


def _signature(
    call: Annotated[str, Field(description="The handle that the earlier result has named.")],
) -> None:
    """Declare the parameters."""


_PARAMETERS = Parameters(CONTINUE_CALL, _signature, ())


class ContinueCall:
    """``continue_call`` as a server offers it; the attributes are those of a tool."""

    name = CONTINUE_CALL
    title = "Continue a call"
    annotations: ToolAnnotations | None = None
    description = (
        "Pick up a tool call that had to stop because it needed more answers than one request may"
        " ask for. It goes on exactly where it stopped."
    )
    input_schema: dict[str, Any] = _PARAMETERS.schema
    returns: Any = inspect.Signature.empty  # the value of the tool that is continued

    def __init__(self, service: Service) -> None:
        self._service = service

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments, checked.

        Raises:
            InvalidArgumentsError: they do not fit.
        """
        return _PARAMETERS.validate(arguments)

    async def serve(self, arguments: Mapping[str, Any], request: McpRequest) -> object:
        """Ask the open questions of the call again, or run the next round of the chain.

        Raises:
            ToolError: the call cannot be continued.
            InvalidTokenError: the state is malformed, or its call is no longer known.
            Exception: what the call raises.
        """
        line = str(arguments["call"])
        if not is_marked(request.state):
            return await self._reopen(line, request)
        begins, state = unmarked(request.state or "")
        tool, given = await self._find(line, request)
        return await run_round(tool, given, request, self._service, state=state, begins=begins)

    async def _reopen(self, line: str, request: McpRequest) -> object:
        service = self._service
        record = await service.calls.find(line, request.principal)
        if record is not None and record.status == "open" and record.tool in service.continuing:
            waiting = await service.calls.waiting(line, ROUND_REPLIES)
            if waiting is not None:
                reply, last = waiting
                if request.is_modern:
                    return in_chain(reply, last.number)
                tool = service.continuing[record.tool]
                arguments = tool.validate(json.loads(record.arguments))
                journal = await service.calls.load(last.state)
                return await run_live(tool, arguments, journal, request, service)
        raise ToolError(f"There is no call {line!r} to continue. Start the tool again.")

    async def _find(self, line: str, request: McpRequest) -> tuple[Tool[Any], dict[str, Any]]:
        record = await self._service.calls.find(line, request.principal)
        if record is None or record.tool not in self._service.continuing:
            raise InvalidTokenError
        tool = self._service.continuing[record.tool]
        return tool, tool.validate(json.loads(record.arguments))
