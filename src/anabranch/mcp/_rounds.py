"""MCP 2026-07-28: the questions of a round as an ``InputRequiredResult``, and the answers in a retry.

The state travels as ``requestState``, which the server's boundary seals and unseals; only plaintext
that this server wrote arrives here (SEP-2322). A call that only sleeps asks nothing: its result has
the state alone, with which its client repeats the request. Answers are accepted only for questions
that are open in the journal, and only of the right kind; any other is ignored, and the question
asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mcp.types import InputRequiredResult
from pydantic import BaseModel

from anabranch._engine import Answer, Ask, Journal
from anabranch.mcp._protocol import CONTEXT_META, to_answer, to_request


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
