"""One ``tools/call``, whatever server it came to: which era, which call, what becomes of it.

Owns the choice between a live call and a round of a stateless one, and the continuing of calls
that had to stop. The hosts (``server.py``, ``fastmcp.py``) make an ``McpRequest`` of what they
were given, and tell errors in their own ways.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.types import InputRequiredResult

from anabranch._asking.host import Host
from anabranch._asking.sampling import Sampler
from anabranch._durable.job import Job
from anabranch._durable.service import CallService
from anabranch._engine import Finished, Journal
from anabranch._opening import Runtime
from anabranch.errors import InvalidTokenError, ToolError
from anabranch.mcp._continue_call import (
    CHAIN,
    CONTINUE,
    begins_at,
    is_continuing,
    marked,
    to_be_continued,
)
from anabranch.mcp._handshake import asking
from anabranch.mcp._request import McpRequest
from anabranch.mcp._rounds import ROUND_REPLIES, answers_to
from anabranch.tool import Tool

__all__ = ["Service", "ToBeContinued", "serve"]


def _in_memory() -> CallService:
    return CallService(Runtime())


@dataclass(frozen=True, slots=True)
class Service:
    """What all tools of one installation share.

    Attributes:
        calls: runs them.
        sampler: a model of the server's own; without one, the client's is asked.
        continuing: the tools that ``continue_call`` may pick up, by name; empty without it.
    """

    calls: CallService = field(default_factory=_in_memory)
    sampler: Sampler | None = None
    continuing: dict[str, Tool[Any]] = field(default_factory=dict[str, Tool[Any]])


@dataclass(frozen=True, slots=True)
class ToBeContinued:
    """The chain of rounds has ended, and the call has not; ``text`` tells the model how to go on."""

    text: str


async def serve(
    tool: Tool[Any], arguments: Mapping[str, Any], request: McpRequest, service: Service
) -> object:
    """Run the round, or the call, that ``request`` is about.

    Returns:
        The tool's value, an ``InputRequiredResult``, or :class:`ToBeContinued`.

    Raises:
        InvalidTokenError: the state is none of this server's, or not of a call that is open.
        Exception: what the call raises.
    """
    if tool is CONTINUE and not (request.state and is_continuing(request.state)):
        return await _reopen(str(arguments["call"]), request, service)
    if request.is_modern:
        return await _round(tool, arguments, request, service)
    journal = service.calls.new()
    return await _live(tool, arguments, journal, request, service)


def _job(
    tool: Tool[Any],
    arguments: Mapping[str, Any],
    journal: Journal,
    request: McpRequest,
    service: Service,
) -> Job:
    host = Host(request.capabilities, service.sampler)
    return Job(tool, arguments, host, request.sink(journal), request.principal)


async def _live(
    tool: Tool[Any],
    arguments: Mapping[str, Any],
    journal: Journal,
    request: McpRequest,
    service: Service,
) -> object:
    job = _job(tool, arguments, journal, request, service)
    return await service.calls.run_live(job, journal, asking(request.session, request.request_id))


async def _round(
    tool: Tool[Any], arguments: Mapping[str, Any], request: McpRequest, service: Service
) -> object:
    begins, state = None, request.state
    if tool is CONTINUE:
        begins, state = begins_at(state or "")
        tool, arguments = await _kept(str(arguments["call"]), request, service)
    calls = service.calls
    journal = calls.new() if state is None else await calls.load(state)
    number = journal.rounds + 1
    # Answers that come without a state answer nothing that was asked.
    answers = answers_to(journal, request.responses)
    job = _job(tool, arguments, journal, request, service)
    outcome = await calls.run_round(job, journal, answers, ROUND_REPLIES)
    if isinstance(outcome, Finished):
        return outcome.value
    if service.continuing and number - (begins or 0) >= CHAIN:
        return ToBeContinued(to_be_continued(tool.name, journal.line))
    return outcome if begins is None else _marked(outcome, begins)


def _marked(reply: InputRequiredResult, begins: int) -> InputRequiredResult:
    return reply.model_copy(update={"request_state": marked(reply.request_state or "", begins)})


async def _reopen(line: str, request: McpRequest, service: Service) -> object:
    """Ask again what is open in a call that had to stop."""
    record = await service.calls.find(line, request.principal)
    if record is not None and record.status == "open" and record.tool in service.continuing:
        waiting = await service.calls.waiting(line, ROUND_REPLIES)
        if waiting is not None:
            reply, last = waiting
            if request.is_modern:
                return _marked(reply, last.number)
            tool = service.continuing[record.tool]
            arguments = tool.validate(json.loads(record.arguments))
            journal = await service.calls.load(last.state)
            return await _live(tool, arguments, journal, request, service)
    raise ToolError(f"There is no call {line!r} to continue. Start the tool anew.")


async def _kept(
    line: str, request: McpRequest, service: Service
) -> tuple[Tool[Any], dict[str, Any]]:
    record = await service.calls.find(line, request.principal)
    if record is None or record.tool not in service.continuing:
        raise InvalidTokenError
    tool = service.continuing[record.tool]
    return tool, tool.validate(json.loads(record.arguments))
