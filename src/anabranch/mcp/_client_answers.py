"""Answers sampling and elicitation requests of an MCP server through an ``Answerer``.

The module translates the protocol's parameters into ``SampleRequest``, ``ElicitRequest`` and
``UrlRequest``, and the replies back into the protocol's results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import mcp_types as types
from pydantic import ValidationError

from anabranch._asking import Answerer, AnswerError
from anabranch._text import encodable
from anabranch.elicitation import describe
from anabranch.mcp._protocol import CONTEXT_META
from anabranch.messages import ElicitRequest, SampleReply, SampleRequest, UrlRequest


async def answer_sample(
    answerer: Answerer, step_id: str, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
    """Let ``answerer`` answer in the role of the model; its :class:`AnswerError` becomes the answer."""
    try:
        return _sampled(await answerer.sample(_sample_request(params), step_id=step_id))
    except AnswerError as error:
        return _error(error)


async def answer_elicit(
    answerer: Answerer, step_id: str, params: types.ElicitRequestParams
) -> types.ElicitResult | types.ErrorData:
    """Let ``answerer`` answer in the role of the user; its :class:`AnswerError` becomes the answer."""
    try:
        reply = await answerer.elicit(elicit_request(step_id, params), step_id=step_id)
    except AnswerError as error:
        return _error(error)
    return types.ElicitResult.model_validate(encodable(reply.wire()))


def _sample_request(params: types.CreateMessageRequestParams) -> SampleRequest:
    wire = params.model_dump(by_alias=True, mode="json", exclude_none=True)
    choice: dict[str, Any] = wire.get("toolChoice") or {}
    wire["toolChoice"] = choice.get("mode")
    try:
        return SampleRequest.model_validate(wire)
    except ValidationError as error:
        raise AnswerError(f"this client cannot read the request: {describe(error)}") from error


def elicit_request(step_id: str, params: types.ElicitRequestParams) -> ElicitRequest | UrlRequest:
    """Return the question of a server in this library's types."""
    if isinstance(params, types.ElicitRequestURLParams):
        elicitation_id = params.elicitation_id or step_id
        return UrlRequest(message=params.message, url=params.url, elicitation_id=elicitation_id)
    meta = cast("Mapping[str, Any]", params.meta or {})
    return ElicitRequest(
        message=params.message,
        requested_schema=dict(params.requested_schema),
        context=meta.get(CONTEXT_META),
    )


def _sampled(
    reply: SampleReply,
) -> types.CreateMessageResult | types.CreateMessageResultWithTools:
    wire = encodable(reply.wire())
    wire.pop("usage", None)  # the protocol has no field for it
    if len(reply.content) == 1:
        wire["content"] = wire["content"][0]  # before 2025-11-25, content was a single block
        if not reply.tool_calls:
            return types.CreateMessageResult.model_validate(wire)
    return types.CreateMessageResultWithTools.model_validate(wire)


def _error(error: AnswerError) -> types.ErrorData:
    code = error.code if isinstance(error.code, int) else types.INTERNAL_ERROR
    return types.ErrorData(code=code, message=encodable(str(error)), data=encodable(error.data))
