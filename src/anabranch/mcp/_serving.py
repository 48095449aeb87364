"""One ``tools/call`` of a tool, whatever server it came to: a live call, or a stateless round.

The hosts (``_sdk_tool.py``, ``_fastmcp_tool.py``) check the arguments, make an ``McpRequest`` of
what their SDK gives them, and map errors by ``_error_mapping.py``.

A client of the handshake era answers while its call is live. Where it cannot be asked everything,
and the server asks by results, its call runs by rounds, too: what the client can answer is asked
between them, and the rest ends the request with a result that lists it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import mcp_types as types
from mcp.types import InputRequiredResult

from anabranch._asking.host import Capabilities, Host
from anabranch._asking.sampling import Sampler
from anabranch._durable.job import Job
from anabranch._durable.service import CallService
from anabranch._encodable import encodable
from anabranch._engine import Answer, Finished, Journal
from anabranch.mcp._ask_links import AskLinks
from anabranch.mcp._chains import CHAIN, marked
from anabranch.mcp._error_mapping import checked_results
from anabranch.mcp._handles import Handles, OpenCall
from anabranch.mcp._handshake import asking, request_answer
from anabranch.mcp._heartbeat import HEARTBEAT, Heartbeat
from anabranch.mcp._idempotency import KEY_META
from anabranch.mcp._request import McpRequest
from anabranch.mcp._rounds import ROUND_REPLIES, answers_to
from anabranch.mcp._unfinished import chain_end, open_questions
from anabranch.tool import Tool

__all__ = ["Chain", "Service", "ask_client", "run_live", "run_rounds", "serve"]


def _nothing() -> None:
    """Do nothing: there is no store."""


@dataclass(frozen=True, slots=True)
class Service:
    """What all tools of one installation share.

    Attributes:
        calls: runs them.
        handles: names calls that are not done.
        sampler: a model of the server's own; without one, the client's is asked.
        prefer_client: ask that model only where the client cannot sample, or refuses.
        heartbeat: seconds between two signs of life while a client's answer is awaited.
        continues: whether ``continue_call`` is offered.
        asks_by_result: whether questions that a client cannot show are listed in a result.
        links: makes links to pages of such questions, if they have any.
        on_call: called before each call, or round.
    """

    calls: CallService
    handles: Handles
    sampler: Sampler | None = None
    prefer_client: bool = False
    heartbeat: float | None = HEARTBEAT
    continues: bool = False
    asks_by_result: bool = False
    links: AskLinks | None = None
    on_call: Callable[[], None] = _nothing

    def by_rounds(self, request: McpRequest) -> bool:
        """Whether a call runs by rounds, and not live while its client answers."""
        return request.is_modern or (
            self.asks_by_result and _widened(request.capabilities) != request.capabilities
        )

    def heartbeat_of(self, request: McpRequest) -> Heartbeat:
        """Return the signs of life of ``request``."""
        return Heartbeat(request, self.heartbeat, self.calls.runtime.clock)

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
        self, call: OpenCall, request: McpRequest, capabilities: Capabilities | None = None
    ) -> Job:
        """Return what is to run for ``request``, whose own capabilities count by default."""
        self.on_call()
        offered = request.capabilities if capabilities is None else capabilities
        if capabilities is None and self.asks_by_result:
            offered = _widened(offered)
        host = Host(
            offered,
            self.sampler,
            unreachable=capabilities is None and request.unreachable,
            prefer_client=self.prefer_client,
        )
        return Job(call.tool, call.arguments, host, request.sink(call.journal), request.principal)


@lru_cache
def _widened(capabilities: Capabilities) -> Capabilities:
    """Return ``capabilities`` with the questions that can be asked by a result."""
    return replace(capabilities, elicitation=True, elicitation_url=True)


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
        ToolError: the call is not done, and the tool's result cannot say so.
        Exception: what the call raises.
    """
    if request.state is None:
        journal = service.new(tool, arguments, request)
    else:
        journal = await service.calls.load(request.state)
    call = OpenCall(tool, arguments, journal)
    if service.by_rounds(request):
        # Answers that come without a state answer nothing that was asked.
        answers = answers_to(journal, request.responses)
        value = await run_rounds(call, answers, request, service)
    else:
        value = await run_live(call, request, service)
    if isinstance(value, InputRequiredResult):  # encodable already: to_request() has made it so
        return value
    with checked_results():
        return encodable(value)


async def run_live(call: OpenCall, request: McpRequest, service: Service) -> object:
    """Run the call while its client answers; return the tool's value."""
    job = service.job(call, request)
    answerer = asking(request, service.heartbeat_of(request))
    return await service.calls.run_live(job, call.journal, lambda call: call.drive(answerer))


class Chain(NamedTuple):
    """The rounds of one request: the number of the first, and whether states are marked with it."""

    begins: int = 0
    marks: bool = False


WHOLE = Chain()


async def run_rounds(
    call: OpenCall,
    answers: Mapping[str, Answer],
    request: McpRequest,
    service: Service,
    chain: Chain = WHOLE,
) -> object:
    """Run the next round of a call; return its value, or what asks the client."""
    number = call.journal.rounds
    outcome = await service.calls.run_round(
        service.job(call, request), call.journal, answers, ROUND_REPLIES
    )
    if isinstance(outcome, Finished):
        return outcome.value
    return await ask_client(call, outcome, request, service, chain, number)


async def ask_client(
    call: OpenCall,
    reply: InputRequiredResult,
    request: McpRequest,
    service: Service,
    chain: Chain,
    number: int,
) -> object:
    """Return what asks the questions of ``reply``, which ended the round ``number`` of ``call``.

    A client of the handshake era is asked here what it can answer, and the call goes on.

    Raises:
        ToolError: the call is not done, and the tool's result cannot say so.
        Exception: what the call raises.
    """
    heartbeat = service.heartbeat_of(request)
    while askable := _askable(reply, request, service):
        if request.is_modern:
            return await _next_round(call, reply, askable, request, service, chain, number)
        journal = await service.calls.load(reply.request_state or "")
        call = OpenCall(call.tool, call.arguments, journal)
        asked = [
            request_answer(step_id, each, request, heartbeat) for step_id, each in askable.items()
        ]
        answers = dict(zip(askable, await asyncio.gather(*asked), strict=True))
        job = service.job(call, request)
        outcome = await service.calls.run_round(job, journal, answers, ROUND_REPLIES)
        if isinstance(outcome, Finished):
            return outcome.value
        reply = outcome
    state, requests = reply.request_state or "", reply.input_requests or {}
    handle = await service.handles.make(call, state, request.principal)
    links: dict[str, str] = {}
    if service.links is not None:
        links = {
            step_id: await service.links.make(call.tool.name, state, step_id)
            for step_id, each in requests.items()
            if isinstance(each.params, types.ElicitRequestFormParams)
        }
    return open_questions(call, request.called, handle, requests, links)


async def _next_round(
    call: OpenCall,
    reply: InputRequiredResult,
    askable: dict[str, types.InputRequest],
    request: McpRequest,
    service: Service,
    chain: Chain,
    number: int,
) -> InputRequiredResult | str:
    """Return ``reply`` with the questions in ``askable``, or the end of a chain that is too long."""
    state = reply.request_state or ""
    if service.continues and number - chain.begins >= CHAIN:
        handle = await service.handles.make(call, state, request.principal)
        return chain_end(call, request.called, handle)
    if chain.marks:
        state = marked(state, chain.begins)
    elif askable == reply.input_requests:  # nearly always
        return reply
    return reply.model_copy(update={"request_state": state, "input_requests": askable})


def _askable(
    reply: InputRequiredResult, request: McpRequest, service: Service
) -> dict[str, types.InputRequest]:
    """Return the questions of ``reply`` that the client can show or answer."""
    requests = reply.input_requests or {}
    if not service.asks_by_result:
        return requests
    capabilities = request.capabilities
    return {step_id: each for step_id, each in requests.items() if _shows(capabilities, each)}


def _shows(capabilities: Capabilities, request: types.InputRequest) -> bool:
    if not isinstance(request, types.ElicitRequest):
        return True  # a sample is asked only of a client that samples
    if isinstance(request.params, types.ElicitRequestURLParams):
        return capabilities.elicitation_url
    return capabilities.elicitation
