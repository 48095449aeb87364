"""Serves one ``tools/call`` of a tool on any host: a live call, or a stateless round.

A client of the handshake era answers while its call is live. If such a client cannot answer
everything, and the server asks by results, the call also runs by rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import mcp_types as types
from mcp.types import InputRequiredResult

from anabranch._aio import pause, run_until
from anabranch._asking import Capabilities
from anabranch._durable import digest
from anabranch._engine import Answer, Ask, Finished, Journal, wakes_at
from anabranch._text import encodable
from anabranch.mcp._eras import CHAIN, ROUND_REPLIES, answers_to, marked, request_answer
from anabranch.mcp._error_mapping import checked_results
from anabranch.mcp._protocol import to_request
from anabranch.mcp._request import McpRequest
from anabranch.mcp._service import OpenCall, Service
from anabranch.mcp._unfinished import Unfinished, chain_end, open_questions
from anabranch.tool import Tool


async def serve(
    tool: Tool[Any], service: Service, arguments: Mapping[str, Any], request: McpRequest
) -> object:
    """Run the call of ``request``, or one round of it, with validated ``arguments``.

    Returns the tool's value, an ``InputRequiredResult``, or an ``Unfinished`` call.
    """
    if request.state is None:
        journal = service.new(tool, arguments, request)
    else:
        journal = await service.calls.stored.load(request.state)
    call, serving = OpenCall(tool, arguments, journal), Serving(service, request)
    if service.by_rounds(request):
        # Answers without a state belong to no question.
        value = await serving.run_rounds(call, answers_to(journal, request.responses))
    else:
        value = await serving.run_live(call)
    return sendable(value)


def sendable(value: object) -> object:
    """Return ``value``, of a tool or with questions, with all texts encodable."""
    if isinstance(value, InputRequiredResult):  # to_request() has made it encodable
        return value
    with checked_results():
        return encodable(value)


class Chain(NamedTuple):
    """A chain of requests: the number of its first round, and whether states have this mark."""

    begins: int = 0
    marks: bool = False


WHOLE = Chain()


@dataclass(frozen=True, slots=True)
class Serving:
    service: Service
    request: McpRequest

    async def run_live(self, call: OpenCall) -> object:
        service, request = self.service, self.request
        job, heartbeat = service.job(call, request), service.heartbeat_of(request)

        async def answer(ask: Ask) -> Answer:
            return await request_answer(ask.step_id, to_request(ask), request, heartbeat)

        return await service.calls.run_live(job, call.journal, lambda call: call.drive(answer))

    async def run_rounds(
        self, call: OpenCall, answers: Mapping[str, Answer], chain: Chain = WHOLE
    ) -> object:
        number = call.journal.rounds
        outcome, linked = await self._round(call, answers)
        if isinstance(outcome, Finished):
            return outcome.value
        if self.request.is_modern:
            await self.service.calls.hold(call.tool, call.journal)
        return await self.ask_client(call, outcome, chain, number, linked=linked)

    async def ask_client(
        self,
        call: OpenCall,
        reply: InputRequiredResult,
        chain: Chain,
        number: int,
        *,
        linked: bool = False,
    ) -> object:
        """Return the result that asks the questions of ``reply``, which ended round ``number``.

        A client of the handshake era is asked here, as far as it can answer. ``linked`` questions have
        sent the user to a page, and have no answer there yet.
        """
        service, request = self.service, self.request
        while (
            askable := await self._askable(call, reply, linked=linked)
        ) or not reply.input_requests:
            if request.is_modern:
                return await self._next_round(call, reply, askable, chain, number)
            journal = await service.calls.stored.load(reply.request_state or "")
            call = OpenCall(call.tool, call.arguments, journal)
            outcome, linked = await self._round(call, await self._asked(askable, journal))
            if isinstance(outcome, Finished):
                return outcome.value
            reply = outcome
        state, requests = reply.request_state or "", reply.input_requests or {}
        handle = await service.handles.make(call, state, request.principal)
        links = {
            step_id: await service.links.make(call.tool.name, state, step_id)
            for step_id, each in requests.items()
            if service.links is not None and isinstance(each.params, types.ElicitRequestFormParams)
        }
        return open_questions(call, request.called, handle, requests, links)

    async def _round(
        self, call: OpenCall, answers: Mapping[str, Answer]
    ) -> tuple[Finished[Any] | InputRequiredResult, bool]:
        """Run a round; return its outcome, and whether the outcome asks a question of an open page.

        A consent to open a page is no answer to the round: the page stores the user's answer.
        """
        opened: set[str] = set()
        if self.service.links is not None and not self.request.capabilities.elicitation:
            opened = {
                step_id
                for step_id, answer in answers.items()
                if answer.value == {"action": "accept"}
                and call.journal.pending[step_id][0] == "elicit"
            }
        job = self.service.job(call, self.request)
        given = {step_id: answers[step_id] for step_id in answers if step_id not in opened}
        outcome = await self.service.calls.run_round(job, call.journal, given, ROUND_REPLIES)
        if isinstance(outcome, Finished):
            return outcome, False
        return outcome, not opened.isdisjoint(outcome.input_requests or {})

    async def _asked(
        self, askable: Mapping[str, types.InputRequest], journal: Journal
    ) -> dict[str, Answer]:
        """Return the client's answers that arrive before the first sleep of the call ends."""
        heartbeat = self.service.heartbeat_of(self.request)
        answers: dict[str, Answer] = {}
        clock, until = self.service.calls.runtime.clock, wakes_at(journal)

        async def ask(step_id: str, each: types.InputRequest) -> None:
            answers[step_id] = await request_answer(step_id, each, self.request, heartbeat)

        async def ask_all() -> None:
            await asyncio.gather(*(ask(*each) for each in askable.items()))

        if askable:
            await run_until(clock, until, ask_all())
        elif until is not None:
            async with heartbeat.waiting():
                await pause(clock, until - clock.now())
        return {step_id: answers[step_id] for step_id in askable if step_id in answers}

    async def _next_round(
        self,
        call: OpenCall,
        reply: InputRequiredResult,
        askable: dict[str, types.InputRequest],
        chain: Chain,
        number: int,
    ) -> InputRequiredResult | Unfinished:
        """Return ``reply`` with the questions ``askable``; after too many rounds, ``Unfinished``."""
        service, request, state = self.service, self.request, reply.request_state or ""
        if service.continues and number - chain.begins >= CHAIN:
            handle = await service.handles.make(call, state, request.principal)
            return chain_end(call, request.called, handle, asleep=not askable)
        if chain.marks:
            state = marked(state, chain.begins)
        elif askable == (reply.input_requests or {}):  # nearly always
            return reply
        return reply.model_copy(update={"request_state": state, "input_requests": askable or None})

    async def _askable(
        self, call: OpenCall, reply: InputRequiredResult, *, linked: bool
    ) -> dict[str, types.InputRequest]:
        """Return the questions of ``reply`` that the client can show, some as links to a page."""
        requests = reply.input_requests or {}
        if not self.service.asks_by_result:
            return requests
        capabilities, askable = self.request.capabilities, dict[str, types.InputRequest]()
        links = self.service.links if capabilities.elicitation_url and not linked else None
        for step_id, each in requests.items():
            if _shows(capabilities, each):
                askable[step_id] = each
            elif isinstance(each, types.ElicitRequest) and links is not None:
                url = await links.make(call.tool.name, reply.request_state or "", step_id)
                askable[step_id] = _to_link(each, url)
        return askable


def _shows(capabilities: Capabilities, request: types.InputRequest) -> bool:
    if not isinstance(request, types.ElicitRequest):
        return True  # only a client that samples is asked for a sample
    if isinstance(request.params, types.ElicitRequestURLParams):
        return capabilities.elicitation_url
    return capabilities.elicitation


def _to_link(request: types.ElicitRequest, url: str) -> types.ElicitRequest:
    params = request.params
    linked = types.ElicitRequestURLParams(
        message=params.message, url=url, elicitation_id=digest(url), _meta=params.meta
    )
    return types.ElicitRequest(params=linked)
