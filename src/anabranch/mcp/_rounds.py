"""MCP 2026-07-28: the questions of a round as an ``InputRequiredResult``, and the answers in a retry.

The state travels as ``requestState``, which the server's boundary seals and unseals, so this module
sees only plaintext that this server wrote (SEP-2322). A sleeping call asks nothing: its result has
only the state, with which the client repeats the request. The module accepts answers of the right
kind to questions that are open in the journal. It ignores any other answer, and the question is
asked again.

A *chain* is the rounds of one request. Its state is marked with the number of its first round. The
client side uses ``questions_of`` and ``answer_others``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import anyio
import mcp_types as types
from mcp.types import InputRequiredResult
from pydantic import BaseModel

from anabranch._asking import Answerer
from anabranch._engine import Answer, Ask, Journal
from anabranch.errors import InvalidTokenError, ToolError
from anabranch.mcp._protocol import (
    CONTEXT_META,
    answer_sample,
    elicit_request,
    to_answer,
    to_request,
)
from anabranch.messages import ElicitRequest, UrlRequest

CHAIN: Final = 10
"""Maximum rounds of questions in one chain: known clients answer ten, and take an eleventh reply."""

_MARK = "+"


def marked(state: str, begins: int) -> str:
    """Return ``state`` marked for a chain that began at round ``begins``."""
    return f"{_MARK}{begins} {state}"


def unmarked(state: str) -> tuple[int, str]:
    """Return the first round of a marked state's chain, and the state itself.

    Raises:
        InvalidTokenError: if the state has no mark, or a malformed one.
    """
    begins, _, rest = state.removeprefix(_MARK).partition(" ")
    if not (state.startswith(_MARK) and begins.isdecimal()):
        raise InvalidTokenError
    return int(begins), rest


Response: TypeAlias = (
    types.ElicitResult | types.CreateMessageResult | types.CreateMessageResultWithTools
)
"""The answer to one request of a round."""

UNASKED: Final = 0.1
"""Seconds before a call continues whose result only asks for a repetition."""


@dataclass(frozen=True, slots=True)
class RoundOfAnswers:
    """The input of a call's next round: the answers to the round before, and its state."""

    responses: Mapping[str, Response]
    state: str | None


def questions_of(asked: types.InputRequiredResult) -> dict[str, ElicitRequest | UrlRequest]:
    """Return the questions of a round to the user."""
    requests = (asked.input_requests or {}).items()
    return {
        key: elicit_request(key, request.params)
        for key, request in requests
        if isinstance(request, types.ElicitRequest)
    }


async def answer_others(
    asked: types.InputRequiredResult, answerer: Answerer
) -> dict[str, Response]:
    """Return the answers of ``answerer`` to the asks of a round that are not questions to the user.

    Raises:
        ToolError: if ``answerer`` refuses, or the client has not declared the capability.
    """
    responses: dict[str, Response] = {}
    for key, request in (asked.input_requests or {}).items():
        if isinstance(request, types.CreateMessageRequest):
            response = await answer_sample(answerer, key, request.params)
            if isinstance(response, types.ErrorData):
                raise ToolError(f"The server's request was refused: {response.message}")
            responses[key] = response
        elif not isinstance(request, types.ElicitRequest):
            raise ToolError("The server asks for this client's roots, and the client has none.")
    if not asked.input_requests:
        await anyio.sleep(UNASKED)
    return responses


def answers_to(journal: Journal, responses: Mapping[str, BaseModel] | None) -> dict[str, Answer]:
    """Return the answers among ``responses`` to open questions."""
    answers: dict[str, Answer] = {}
    for step_id, result in (responses or {}).items():
        if step_id in journal.questions:
            answer = to_answer(journal.pending[step_id][0], result)
            if answer is not None:
                answers[step_id] = answer
    return answers


def _contexts(requests: Mapping[str, BaseModel]) -> dict[str, Any] | None:
    """Return the contexts of questions as the result's ``_meta``, since requests in it have none."""
    contexts: dict[str, Any] = {}
    for step_id, request in requests.items():
        meta: Mapping[str, Any] = cast("Any", request).params.meta or {}
        if CONTEXT_META in meta:
            contexts[step_id] = meta[CONTEXT_META]
    return {CONTEXT_META: contexts} if contexts else None


class _RoundReplies:
    """Converts the open questions of a round to its result, and to and from the stored form."""

    kind = "round"

    def make(self, asks: tuple[Ask, ...], state: str) -> InputRequiredResult:
        requests = {ask.step_id: to_request(ask) for ask in asks}
        return InputRequiredResult(
            input_requests={**requests} or None, request_state=state, _meta=_contexts(requests)
        )

    def dump(self, reply: InputRequiredResult) -> dict[str, Any]:
        return reply.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude={"request_state"}
        )

    def load(self, stored: dict[str, Any], state: str) -> InputRequiredResult:
        return InputRequiredResult.model_validate({**stored, "requestState": state})


ROUND_REPLIES: _RoundReplies = _RoundReplies()
"""The replies of rounds, sent and stored."""
