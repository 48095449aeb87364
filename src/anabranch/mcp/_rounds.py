"""MCP 2026-07-28: the questions of a round as an ``InputRequiredResult``, and the answers in a retry.

The state travels as ``requestState``, which the server's boundary seals and unseals; only plaintext
that this server wrote arrives here (SEP-2322). A call that only sleeps asks nothing: its result has
the state alone, with which its client repeats the request. Answers are accepted only for questions
that are open in the journal, and only of the right kind; any other is ignored, and the question
asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import anyio
import mcp_types as types
from mcp.types import InputRequiredResult
from pydantic import BaseModel

from anabranch._asking.answerer import Answerer
from anabranch._engine import Answer, Ask, Journal
from anabranch.errors import InvalidTokenError, ToolError
from anabranch.mcp._client_answers import answer_sample, elicit_request
from anabranch.mcp._protocol import CONTEXT_META, to_answer, to_request
from anabranch.messages import ElicitRequest, UrlRequest

CHAIN: Final = 10
"""Rounds of questions in one chain: known clients answer ten, and take an eleventh reply."""

_MARK = "+"


def marked(state: str, begins: int) -> str:
    """Return ``state`` marked for a chain that began at round ``begins``."""
    return f"{_MARK}{begins} {state}"


def unmarked(state: str) -> tuple[int, str]:
    """Return the round at which the chain of a marked state began, and the state itself.

    Raises:
        InvalidTokenError: it has no mark, or a malformed one.
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
"""Seconds before a call goes on that has only asked to be repeated."""


@dataclass(frozen=True, slots=True)
class RoundOfAnswers:
    """What the next round of a call is sent: the answers to the round before, and its state."""

    responses: Mapping[str, Response]
    state: str | None


def questions_of(asked: types.InputRequiredResult) -> dict[str, ElicitRequest | UrlRequest]:
    """Return what a round asks the person."""
    requests = (asked.input_requests or {}).items()
    return {
        key: elicit_request(key, request.params)
        for key, request in requests
        if isinstance(request, types.ElicitRequest)
    }


async def answer_others(
    asked: types.InputRequiredResult, answerer: Answerer
) -> dict[str, Response]:
    """Return what ``answerer`` answers to what a round asks, other than questions to the person.

    Raises:
        ToolError: it refuses, or what is asked has not been declared.
    """
    responses: dict[str, Response] = {}
    for key, request in (asked.input_requests or {}).items():
        if isinstance(request, types.CreateMessageRequest):
            response = await answer_sample(answerer, key, request.params)
            if isinstance(response, types.ErrorData):
                raise ToolError(f"The server's request was refused: {response.message}")
            responses[key] = response
        elif not isinstance(request, types.ElicitRequest):
            raise ToolError("The server asks for the roots of this client, which has none.")
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
    """Return the contexts of questions as the result's own ``_meta``: requests in it have none."""
    contexts: dict[str, Any] = {}
    for step_id, request in requests.items():
        meta: Mapping[str, Any] = cast("Any", request).params.meta or {}
        if CONTEXT_META in meta:
            contexts[step_id] = meta[CONTEXT_META]
    return {CONTEXT_META: contexts} if contexts else None


class _RoundReplies:
    """How the open questions of a round become its result."""

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
"""How a round's questions are sent and stored."""
