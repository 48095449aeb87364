"""Converts questions and answers between MCP and this library, for servers and for clients."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, JsonValue, ValidationError

from anabranch._asking import Answerer, AnswerError, Capabilities, describe
from anabranch._engine import Answer, Ask
from anabranch._text import encodable, number_problem
from anabranch.messages import ElicitRequest, Message, SampleReply, SampleRequest, UrlRequest

if TYPE_CHECKING:
    from anabranch.tool import ToolAnnotations

STEP_ID_META = "anabranch/stepId"
"""The ``_meta`` key of a request's step; in the handshake era nothing else names the step."""

CONTEXT_META = "anabranch/context"
"""The ``_meta`` key of a question's context.

Clients show the message and the schema's texts to the user unchanged; ``_meta`` is for programs.
"""

KEY_META = "anabranch/idempotency-key"
"""The ``_meta`` key of a request's idempotency key."""

TAKES_KEY_META = "anabranch/takes-idempotency-key"
"""The ``_meta`` key of a tool that repeats the reply of a keyed request.

This key differs from the request's key, since some clients send a tool's ``_meta`` with each call
of the tool.
"""

STEP = 2.0**-20
"""The minimum step between two progress numbers: less than any progress of a tool."""


def to_params(ask: Ask) -> dict[str, Any]:
    request: SampleRequest | ElicitRequest | UrlRequest = ask.request
    params: dict[str, Any] = request.wire()
    if isinstance(request, SampleRequest):
        params["messages"] = [_message(message) for message in request.messages]
        if request.tool_choice is not None:
            params["toolChoice"] = {"mode": request.tool_choice}
    elif isinstance(request, ElicitRequest):
        params = {"message": request.message, "requestedSchema": dict(request.requested_schema)}
        if request.context is not None:
            params["_meta"] = {CONTEXT_META: request.context}
    else:
        params["mode"] = "url"
    return encodable(params)


def _message(message: Message) -> dict[str, Any]:
    """Return a message; a single block is sent outside a list, for clients before 2025-11-25."""
    wire = message.wire()
    if len(message.content) == 1:
        wire["content"] = wire["content"][0]
    return wire


def to_request(ask: Ask) -> types.ElicitRequest | types.CreateMessageRequest:
    params = to_params(ask)
    params["_meta"] = {**params.get("_meta", {}), STEP_ID_META: ask.step_id}
    if ask.kind == "sample":
        return types.CreateMessageRequest.model_validate({"params": params})
    return types.ElicitRequest.model_validate({"params": {"mode": "form", **params}})


def to_answer(kind: str, result: BaseModel) -> Answer | None:
    if kind != "sample":
        if isinstance(result, types.ElicitResult):  # the SDK has checked it
            given = {} if result.content is None else {"content": _writable(result.content)}
            return Answer({"action": result.action, **given})
        return None
    return _reply(result.model_dump(mode="json", exclude_none=True))


def _writable(content: Mapping[str, Any]) -> JsonValue:
    """Return the fields of a form, with an invalid value for each number that JSON lacks."""
    return {name: {} if number_problem(value) else value for name, value in content.items()}


def to_saga_answer(kind: str, result: Mapping[str, JsonValue]) -> Answer | None:
    shape = types.CreateMessageResultWithTools if kind == "sample" else types.ElicitResult
    try:
        return to_answer(kind, shape.model_validate(result))
    except ValidationError:
        return None


def _reply(result: dict[str, Any]) -> Answer | None:
    try:
        reply = SampleReply.model_validate(result)
    except ValidationError:
        return None
    # In this library's spelling, without unused fields of the protocol.
    value = reply.model_dump(mode="json", exclude_none=True)
    return None if number_problem(value) else Answer(value)


def capabilities_of(declared: types.ClientCapabilities | None) -> Capabilities:
    """Return the capabilities that a client has declared. ``elicitation: {}`` means forms only."""
    if declared is None:
        return Capabilities(
            sampling=False,
            sampling_tools=False,
            sampling_documents=False,
            elicitation=False,
            elicitation_url=False,
        )
    sampling, elicitation = declared.sampling, declared.elicitation
    url = elicitation is not None and elicitation.url is not None
    return _capabilities(
        sampling=sampling is not None,
        sampling_tools=sampling is not None and sampling.tools is not None,
        sampling_context=sampling is not None and sampling.context is not None,
        sampling_documents=False,
        elicitation=elicitation is not None and (elicitation.form is not None or not url),
        elicitation_url=url,
    )


_capabilities = lru_cache(Capabilities)
"""Cached, since a modern client declares its capabilities with every request."""


_DECLARATIONS: dict[str, dict[str, Any]] = {
    "sampling": {"sampling": {}},
    "sampling.tools": {"sampling": {"tools": {}}},
    "sampling.context": {"sampling": {"context": {}}},
    "elicitation": {"elicitation": {"form": {}}},
    "elicitation.url": {"elicitation": {"url": {}}},
}


def required_capabilities(name: str) -> dict[str, Any]:
    """Return the ``data`` of error -32021 for the capability ``name``."""
    return {"requiredCapabilities": _DECLARATIONS[name]}


def to_annotations(annotations: ToolAnnotations | None) -> types.ToolAnnotations | None:
    if annotations is None:
        return None
    return types.ToolAnnotations(
        read_only_hint=annotations.read_only,
        destructive_hint=annotations.destructive,
        idempotent_hint=annotations.idempotent,
        open_world_hint=annotations.open_world,
    )


class _ProtocolErrors:
    """JSON-RPC errors that a tool has raised itself; the client receives them unchanged."""

    def dump(self, error: Exception) -> dict[str, Any] | None:
        if not isinstance(error, MCPError):
            return None
        return error.error.model_dump(mode="json", exclude_none=True)

    def load(self, stored: dict[str, Any]) -> MCPError:
        return MCPError.from_error_data(types.ErrorData.model_validate(stored))


PROTOCOL_ERRORS: _ProtocolErrors = _ProtocolErrors()
"""The conversion of such errors for a store."""


async def answer_sample(
    answerer: Answerer, step_id: str, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
    """Let ``answerer`` answer; its :class:`AnswerError` becomes the answer."""
    try:
        return sampled(await answerer.sample(sample_request(params), step_id=step_id))
    except AnswerError as error:
        return _error(error)


async def answer_elicit(
    answerer: Answerer, step_id: str, params: types.ElicitRequestParams
) -> types.ElicitResult | types.ErrorData:
    try:
        reply = await answerer.elicit(elicit_request(step_id, params), step_id=step_id)
    except AnswerError as error:
        return _error(error)
    return types.ElicitResult.model_validate(encodable(reply.wire()))


def sample_request(params: types.CreateMessageRequestParams) -> SampleRequest:
    wire = params.model_dump(by_alias=True, mode="json", exclude_none=True)
    choice: dict[str, Any] = wire.get("toolChoice") or {}
    wire["toolChoice"] = choice.get("mode")
    try:
        return SampleRequest.model_validate(wire)
    except ValidationError as error:
        raise AnswerError(f"this client cannot read the request: {describe(error)}") from error


def elicit_request(step_id: str, params: types.ElicitRequestParams) -> ElicitRequest | UrlRequest:
    if isinstance(params, types.ElicitRequestURLParams):
        elicitation_id = params.elicitation_id or step_id
        return UrlRequest(message=params.message, url=params.url, elicitation_id=elicitation_id)
    meta = cast("Mapping[str, Any]", params.meta or {})
    return ElicitRequest(
        message=params.message,
        requested_schema=dict(params.requested_schema),
        context=meta.get(CONTEXT_META),
    )


def sampled(reply: SampleReply) -> types.CreateMessageResult | types.CreateMessageResultWithTools:
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
