"""MCP 2026-07-28: stateless rounds. The result asks, and the client retries with its answers.

Owns the translation between a round of a call and ``InputRequiredResult`` (SEP-2322). The state
travels as ``requestState``, which the server's boundary seals and opens; only plaintext that this
server wrote arrives here. Answers are taken only for questions that the journal says are open,
and only of the right kind; anything else is ignored, and asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.types import InputRequiredResult
from pydantic import BaseModel

from anabranch._engine import Answer, Ask, Journal
from anabranch.mcp._protocol import to_answer, to_request

__all__ = ["ROUND_REPLIES", "answers_to"]


def answers_to(journal: Journal, responses: Mapping[str, BaseModel] | None) -> dict[str, Answer]:
    """Return the answers among ``responses``; what answers nothing that was asked is left out."""
    answers: dict[str, Answer] = {}
    for step_id, result in (responses or {}).items():
        if step_id in journal.pending:
            answer = to_answer(journal.pending[step_id][0], result)
            if answer is not None:
                answers[step_id] = answer
    return answers


class _RoundReplies:
    """How the open questions of a round become its result."""

    kind = "round"

    def make(self, asks: tuple[Ask, ...], state: str) -> InputRequiredResult:
        requests: dict[str, types.InputRequest] = {ask.step_id: to_request(ask) for ask in asks}
        return InputRequiredResult(input_requests=requests, request_state=state)

    def dump(self, reply: InputRequiredResult) -> dict[str, Any]:
        return reply.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude={"request_state"}
        )

    def load(self, stored: dict[str, Any], state: str) -> InputRequiredResult:
        return InputRequiredResult.model_validate({**stored, "requestState": state})


ROUND_REPLIES: _RoundReplies = _RoundReplies()
"""The one there is."""
