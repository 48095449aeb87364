"""The questions of a call on their way to the client and back, in each era of the protocol.

MCP up to 2025-11-25: the body runs live, and sends its asks as requests. Each request carries the id of
its ``tools/call``; without the id, it would be sent on a stream that clients need not read. Many clients
time out after sixty seconds without a message. A *heartbeat* is a progress notification meanwhile, for a
client that gave a progress token.

MCP 2026-07-28: the questions of a round are an ``InputRequiredResult``, and a retry has the answers. The
state travels as ``requestState``, which the server's boundary seals and unseals (SEP-2322). A sleeping
call asks nothing: the client repeats the request with the state alone. An answer that is of the wrong
kind, or to no open question, is ignored. A *chain* is the rounds of one request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeAlias

import mcp_types as types
from mcp import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.types import InputRequiredResult
from pydantic import BaseModel, ValidationError

from anabranch._aio import Clock, cancel_and_wait, pause
from anabranch._asking import AnswerError, answer_of_error
from anabranch._engine import Answer, Ask, Journal
from anabranch._text import encodable
from anabranch.errors import InvalidTokenError, ToolError
from anabranch.mcp._protocol import (
    CONTEXT_META,
    elicit_request,
    sample_request,
    sampled,
    to_answer,
    to_request,
)
from anabranch.mcp._request import McpRequest
from anabranch.messages import ElicitReply, ElicitRequest, SampleReply, SampleRequest, UrlRequest


class Heartbeat:
    """The heartbeats of one request, if its client gave a progress token."""

    def __init__(self, request: McpRequest, every: float | None, clock: Clock) -> None:
        self._request = request
        self._every = every
        self._clock = clock
        self._waiting = 0
        self._beating: asyncio.Task[NoReturn] | None = None

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None]:
        """Send heartbeats inside the block; blocks may overlap, and share them."""
        self._waiting += 1
        if self._beating is None and self._every is not None:
            self._beating = asyncio.create_task(self._beat(self._every))
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting and self._beating is not None:
                # The task ends early only if it cannot send; then the call has ended as well.
                beating, self._beating = self._beating, None
                await cancel_and_wait([beating])

    async def _beat(self, every: float) -> NoReturn:
        while True:
            await pause(self._clock, every)
            await self._request.report_progress(None)


TIMES_ASKED = 3
"""Maximum attempts at a question whose answer is of the wrong kind; then it is an error."""


async def request_answer(
    step_id: str, asked: types.InputRequest, request: McpRequest, heartbeat: Heartbeat
) -> Answer:
    kind = "elicit"
    shape: type[types.Result] = types.ElicitResult
    if isinstance(asked, types.CreateMessageRequest):
        kind, shape = "sample", types.CreateMessageResultWithTools
    metadata = ServerMessageMetadata(related_request_id=request.request_id)
    for _ in range(TIMES_ASKED):
        try:
            async with heartbeat.waiting():
                result = await request.session.send_request(asked, shape, metadata=metadata)
        except MCPError as error:
            if _is_disconnect(error.error):
                # Not an answer: the tool must not continue as if the client had answered.
                raise ToolError(
                    "The client disconnected before it answered the question."
                ) from error
            said = error.error
            return answer_of_error(kind, step_id, said.code, said.message, said.data)
        except ValidationError:
            continue  # an answer of another kind
        if (answer := to_answer(kind, result)) is not None:
            return answer
    wrong = "the client's result does not answer this kind of question"
    return answer_of_error(kind, step_id, "InvalidReply", wrong)


def _is_disconnect(error: types.ErrorData) -> bool:
    """Return whether the SDK reports a lost connection by ``error``; clients also use its code."""
    return error.code == types.CONNECTION_CLOSED and error.message == "Connection closed"


CHAIN: Final = 10
"""Maximum rounds of questions in one chain: known clients answer ten, and take an eleventh reply."""

_MARK = "+"


def marked(state: str, begins: int) -> str:
    return f"{_MARK}{begins} {state}"


def unmarked(state: str) -> tuple[int, str]:
    """Return the round at which the chain of a marked state began, and the state without the mark."""
    begins, _, rest = state.removeprefix(_MARK).partition(" ")
    if not (state.startswith(_MARK) and begins.isdecimal()):
        raise InvalidTokenError
    return int(begins), rest


Response: TypeAlias = (
    types.ElicitResult | types.CreateMessageResult | types.CreateMessageResultWithTools
)
"""The answer to one request of a round."""

Request: TypeAlias = ElicitRequest | UrlRequest | SampleRequest
"""One request of a round, in this library's types."""
Reply: TypeAlias = ElicitReply | SampleReply
"""The reply to a :data:`Request`, in this library's types."""

UNASKED: Final = 0.1
"""Seconds before a client repeats a request whose result has no question."""


@dataclass(frozen=True, slots=True)
class RoundOfAnswers:
    """The input of a call's next round: the answers and the state of the round before."""

    responses: Mapping[str, Response]
    state: str | None

    @classmethod
    def of(cls, replies: Mapping[str, Reply], state: str | None) -> RoundOfAnswers:
        return cls({name: _response(reply) for name, reply in replies.items()}, state)


def requests_of(asked: types.InputRequiredResult) -> dict[str, Request]:
    return {key: _request(key, each) for key, each in (asked.input_requests or {}).items()}


def _request(key: str, request: types.InputRequest) -> Request:
    match request:
        case types.ElicitRequest():
            return elicit_request(key, request.params)
        case types.CreateMessageRequest():
            try:
                return sample_request(request.params)
            except AnswerError as error:
                raise ToolError(f"The server's request was refused: {error}") from error
        case _:
            raise ToolError("The server asks for this client's roots, and the client has none.")


def _response(reply: Reply) -> Response:
    if isinstance(reply, SampleReply):
        return sampled(reply)
    return types.ElicitResult.model_validate(encodable(reply.wire()))


def answers_to(journal: Journal, responses: Mapping[str, BaseModel] | None) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for step_id, result in (responses or {}).items():
        if step_id in journal.questions:
            answer = to_answer(journal.pending[step_id][0], result)
            if answer is not None:
                answers[step_id] = answer
    return answers


class _RoundReplies:
    kind = "round"

    def make(self, asks: tuple[Ask, ...], state: str) -> InputRequiredResult:
        requests = {ask.step_id: to_request(ask) for ask in asks}
        # In the result's meta, since the requests in a result have none.
        contexts = {
            ask.step_id: ask.request.context
            for ask in asks
            if isinstance(ask.request, ElicitRequest) and ask.request.context is not None
        }
        return InputRequiredResult(
            input_requests={**requests} or None,
            request_state=state,
            _meta={CONTEXT_META: encodable(contexts)} if contexts else None,
        )

    def dump(self, reply: InputRequiredResult) -> dict[str, Any]:
        return reply.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude={"request_state"}
        )

    def load(self, stored: dict[str, Any], state: str) -> InputRequiredResult:
        return InputRequiredResult.model_validate({**stored, "requestState": state})


ROUND_REPLIES: _RoundReplies = _RoundReplies()
"""The replies of rounds, sent and stored."""
