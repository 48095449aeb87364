"""MCP 2026-07-28: stateless rounds. The result asks, and the client retries with its answers.

Owns the translation between a round of a call and ``InputRequiredResult`` (SEP-2322). The journal
travels as ``requestState``, which the server's boundary seals and opens; only plaintext that this
server wrote arrives here. Answers are taken only for questions that the journal says are open,
and only of the right kind; anything else is ignored, and asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

import mcp_types as types
from mcp import MCPError
from mcp.types import InputRequiredResult
from pydantic import BaseModel

from anabranch.call import Answer, Call, Finished, Journal
from anabranch.edges.mcp.render import to_answer, to_request
from anabranch.edges.opening import warn_of_rounds

__all__ = ["read_state", "run_round"]

T = TypeVar("T")
logger: logging.Logger = logging.getLogger("anabranch.edges.mcp")


def read_state(
    state: str | None, responses: Mapping[str, BaseModel] | None, new: Callable[[], Journal]
) -> Journal:
    """Return the journal of this round: from ``state`` and the answers to it, or a ``new`` one.

    Answers that come without a state answer nothing that was asked.

    Raises:
        MCPError: the state cannot be read: another release wrote it, or another tool of this name.
    """
    if state is None:
        return new()
    try:
        journal = Journal.loads(state)
    except ValueError as problem:
        _refuse(problem)
    answers: dict[str, Answer] = {}
    for step_id, result in (responses or {}).items():
        if step_id in journal.pending:
            answer = to_answer(journal.pending[step_id][0], result)
            if answer is not None:
                answers[step_id] = answer
    journal.answer(answers)
    return journal


def _refuse(problem: ValueError) -> NoReturn:
    """Refuse a state with the words that the SDK's boundary uses for every other reason."""
    logger.warning("requestState rejected: unreadable journal: %s", problem)
    raise MCPError(
        types.INVALID_PARAMS,
        "Invalid or expired requestState",
        {"reason": "invalid_request_state"},
    ) from problem


async def run_round(call: Call[T], tool: str) -> T | InputRequiredResult:
    """Run one round and return the tool's value, or what the client must answer first.

    Raises:
        Exception: what the call raises.
    """
    outcome = await call.round()
    if isinstance(outcome, Finished):
        return outcome.value
    warn_of_rounds(tool, call.journal)
    requests: dict[str, types.InputRequest] = {ask.step_id: to_request(ask) for ask in outcome.asks}
    return InputRequiredResult(input_requests=requests, request_state=call.journal.dumps())
