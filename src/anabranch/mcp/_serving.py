"""One ``tools/call`` of a tool, whatever server it came to: a live call, or a stateless round.

The hosts (``_sdk_tool.py``, ``_fastmcp_tool.py``) check the arguments, make an ``McpRequest`` of
what their SDK gives them, and map errors by ``_error_mapping.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp.types import InputRequiredResult

from anabranch._asking.host import Capabilities, Host
from anabranch._asking.sampling import Sampler
from anabranch._durable.job import Job
from anabranch._durable.service import CallService
from anabranch._encodable import encodable
from anabranch._engine import Finished, Journal
from anabranch._opening import Runtime
from anabranch.mcp._chains import CHAIN, chain_end, marked
from anabranch.mcp._handshake import asking
from anabranch.mcp._idempotency import KEY_META
from anabranch.mcp._request import McpRequest
from anabranch.mcp._rounds import ROUND_REPLIES, answers_to
from anabranch.tool import Tool

__all__ = ["Service", "in_chain", "run_live", "run_round", "serve"]


def _nothing() -> None:
    """Do nothing: there is no store."""


@dataclass(frozen=True, slots=True)
class Service:
    """What all tools of one installation share.

    Attributes:
        calls: runs them.
        sampler: a model of the server's own; without one, the client's is asked.
        prefer_client: ask it only where the client cannot sample, or refuses.
        continuing: the tools that ``continue_call`` may continue, by name; empty without it.
        on_call: called before each call, or round.
    """

    calls: CallService = field(default_factory=lambda: CallService(Runtime()))
    sampler: Sampler | None = None
    continuing: dict[str, Tool[Any]] = field(default_factory=dict[str, Tool[Any]])
    on_call: Callable[[], None] = _nothing
    prefer_client: bool = False

    @property
    def tool_meta(self) -> dict[str, Any] | None:
        """What is listed with each tool: with a store, that first requests may be repeated."""
        return None if self.calls.durability is None else {KEY_META: True}

    def new(self, tool: Tool[Any], arguments: Mapping[str, Any], request: McpRequest) -> Journal:
        """Return the journal of the call that ``request`` begins, or repeats by its key.

        Raises:
            IdempotencyKeyError: the key is malformed.
        """
        key = request.idempotency_key
        return (
            self.calls.keyed(key, request.principal, tool, arguments) if key else self.calls.new()
        )

    def job(
        self,
        tool: Tool[Any],
        arguments: Mapping[str, Any],
        request: McpRequest,
        journal: Journal,
        capabilities: Capabilities | None = None,
    ) -> Job:
        """Return what is to run for ``request``, whose own capabilities count by default."""
        self.on_call()
        offered = request.capabilities if capabilities is None else capabilities
        unreachable = capabilities is None and request.unreachable
        host = Host(
            offered, self.sampler, unreachable=unreachable, prefer_client=self.prefer_client
        )
        return Job(tool, arguments, host, request.sink(journal), request.principal)


async def serve(
    tool: Tool[Any], service: Service, arguments: Mapping[str, Any], request: McpRequest
) -> object:
    """Run the call, or the round, that ``request`` is about; ``arguments`` have been validated.

    Returns:
        The tool's value, or an ``InputRequiredResult``.

    Raises:
        InvalidTokenError: the state is not this server's, or its call is not open.
        CallExpiredError: the call has expired.
        IdempotencyKeyError: the request cannot be run under its key.
        ToolError: the client allows no more rounds, and the tool's result cannot say so.
        Exception: what the call raises.
    """
    if request.is_modern:
        value = await run_round(tool, arguments, request, service, state=request.state)
    else:
        journal = service.new(tool, arguments, request)
        value = await run_live(tool, arguments, journal, request, service)
    return encodable(value)


async def run_live(
    tool: Tool[Any],
    arguments: Mapping[str, Any],
    journal: Journal,
    request: McpRequest,
    service: Service,
) -> object:
    """Run the call of ``journal`` while its client answers; return the tool's value."""
    job = service.job(tool, arguments, request, journal)
    answerer = asking(request.session, request.request_id)
    return await service.calls.run_live(job, journal, lambda call: call.drive(answerer))


async def run_round(
    tool: Tool[Any],
    arguments: Mapping[str, Any],
    request: McpRequest,
    service: Service,
    *,
    state: str | None,
    begins: int | None = None,
) -> object:
    """Run the next round of a call.

    Args:
        tool: what is called.
        arguments: its arguments, validated.
        request: brings the answers.
        service: runs the round.
        state: the call's state; ``None`` begins a new call.
        begins: the round at which ``continue_call`` began the chain, if it did.
    """
    calls = service.calls
    journal = service.new(tool, arguments, request) if state is None else await calls.load(state)
    number = journal.rounds + 1
    # Answers that come without a state answer nothing that was asked.
    answers = answers_to(journal, request.responses)
    job = service.job(tool, arguments, request, journal)
    outcome = await calls.run_round(job, journal, answers, ROUND_REPLIES)
    if isinstance(outcome, Finished):
        return outcome.value
    asked = number if begins is None else number - begins + 1  # it began by asking again
    if service.continuing and asked > CHAIN:
        return chain_end(tool, journal.line, request.called)
    return outcome if begins is None else in_chain(outcome, begins)


def in_chain(reply: InputRequiredResult, begins: int) -> InputRequiredResult:
    """Return ``reply`` with its state marked for the chain that began at round ``begins``."""
    return reply.model_copy(update={"request_state": marked(reply.request_state or "", begins)})
