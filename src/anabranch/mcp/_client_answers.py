"""What servers ask, in this library's words, and the replies as the protocol spells them.

Owns the translation of sampling and elicitation parameters into ``SampleRequest``,
``ElicitRequest`` and ``UrlRequest``, and of replies back. Who answers, and in what order, is decided
by the :class:`Answerer`; how questions arrive, by ``client.py`` and ``saga_client.py``.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Protocol

import mcp_types as types
from pydantic import ValidationError

from anabranch._asking.host import Capabilities
from anabranch.elicitation import describe
from anabranch.inprocess import AnswerError
from anabranch.mcp._protocol import CONTEXT_BOUNDARY
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    LogLevel,
    SampleReply,
    SampleRequest,
    UrlRequest,
)

__all__ = ["Answerer", "answer_elicit", "answer_sample"]


class Answerer(Protocol):
    """Whoever answers what a server asks: a terminal, a file, a test.

    ``step_id`` names the step of the call that asks, where the server tells it, and is empty
    otherwise. A method may raise :class:`AnswerError`; the server is answered with that error. In
    the modern era only a saga's steps can be answered so; elsewhere it ends the call.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What is declared to the server. Forms and URLs are declared together, by the SDK."""
        ...

    async def sample(self, step_id: str, request: SampleRequest) -> SampleReply:
        """Answer as a model."""
        ...

    async def elicit(self, step_id: str, request: ElicitRequest | UrlRequest) -> ElicitReply:
        """Answer as the person."""
        ...

    async def log(self, level: LogLevel, message: str) -> None:
        """Take a log line."""
        ...

    async def notify(self, message: str, progress: float, total: float | None) -> None:
        """Take a progress message."""
        ...


async def answer_sample(
    answerer: Answerer, step_id: str, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
    """Let ``answerer`` answer as a model; its :class:`AnswerError` becomes the answer."""
    try:
        return _sampled(await answerer.sample(step_id, _sample_request(params)))
    except AnswerError as error:
        return _error(error)


async def answer_elicit(
    answerer: Answerer, step_id: str, params: types.ElicitRequestParams
) -> types.ElicitResult | types.ErrorData:
    """Let ``answerer`` answer as the person; its :class:`AnswerError` becomes the answer."""
    try:
        reply = await answerer.elicit(step_id, _elicit_request(step_id, params))
    except AnswerError as error:
        return _error(error)
    return types.ElicitResult.model_validate(reply.wire())


def _sample_request(params: types.CreateMessageRequestParams) -> SampleRequest:
    wire = params.model_dump(by_alias=True, mode="json", exclude_none=True)
    choice: dict[str, Any] = wire.get("toolChoice") or {}
    wire["toolChoice"] = choice.get("mode")
    try:
        return SampleRequest.model_validate(wire)
    except ValidationError as error:
        raise AnswerError(f"this client cannot read the request: {describe(error)}") from error


def _elicit_request(step_id: str, params: types.ElicitRequestParams) -> ElicitRequest | UrlRequest:
    if isinstance(params, types.ElicitRequestURLParams):
        known_as = params.elicitation_id or step_id
        return UrlRequest(message=params.message, url=params.url, elicitation_id=known_as)
    schema = dict(params.requested_schema)
    message, _, appendix = params.message.partition(f"\n\n{CONTEXT_BOUNDARY}\n")
    context = schema.pop("x-elicit-context", None)
    if context is None and appendix:  # the modern era's schemas have no place for it
        with suppress(ValueError):
            context = json.loads(appendix)
    return ElicitRequest(message=message, requested_schema=schema, context=context)


def _sampled(
    reply: SampleReply,
) -> types.CreateMessageResult | types.CreateMessageResultWithTools:
    wire = reply.wire()
    wire.pop("usage", None)  # the protocol has no place for it
    if len(reply.content) == 1:
        wire["content"] = wire["content"][0]  # all that clients and servers knew before 2025-11-25
        if not reply.tool_calls:
            return types.CreateMessageResult.model_validate(wire)
    return types.CreateMessageResultWithTools.model_validate(wire)


def _error(error: AnswerError) -> types.ErrorData:
    code = error.code if isinstance(error.code, int) else types.INTERNAL_ERROR
    return types.ErrorData(code=code, message=str(error))
