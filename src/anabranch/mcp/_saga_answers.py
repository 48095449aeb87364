"""The answers in ``tools/resumeSaga``: every open step answered, no earlier answer changed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from anabranch._asking.answerer import answer_of_error
from anabranch._durable.states import digest
from anabranch._engine import Answer, Journal, canonical
from anabranch.errors import InvalidTokenError
from anabranch.mcp._protocol import to_saga_answer
from anabranch.mcp._saga_params import CompletedStep, invalid, quoted
from anabranch.mcp._sealing import SagaClaims

__all__ = ["answers_in"]

logger: logging.Logger = logging.getLogger("anabranch.mcp")


def answers_in(
    steps: Sequence[CompletedStep], journal: Journal, claims: SagaClaims
) -> dict[str, Answer]:
    """Return the answers to the open steps, and record their digests in ``claims``.

    Raises:
        MCPError: a step is unknown, missing, given twice, or does not answer its question.
        InvalidTokenError: an earlier answer has been changed.
    """
    answers: dict[str, Answer] = {}
    given: set[str] = set()
    for index, step in enumerate(steps):
        where = f"completedSteps[{index}]"
        if step.stepId in given:
            raise invalid(f"{where}.stepId", f"step {quoted(step.stepId)} is given twice")
        given.add(step.stepId)
        if (step.result is None) == (step.error is None):
            raise invalid(where, "give either result or error")
        pinned = _pinned(step)
        if step.stepId in journal.pending:
            answers[step.stepId] = _answer(step, journal.pending[step.stepId][0], where)
            claims.answered[step.stepId] = pinned
        elif step.stepId not in claims.answered:
            raise invalid(f"{where}.stepId", f"step {quoted(step.stepId)} was not asked")
        elif claims.answered[step.stepId] != pinned:
            logger.warning("a saga token was refused: the answer to %r has changed", step.stepId)
            raise InvalidTokenError
    if missing := sorted({*journal.pending, *claims.answered} - given):
        raise invalid("completedSteps", f"the steps {missing} are missing")
    return answers


def _answer(step: CompletedStep, kind: str, where: str) -> Answer:
    if step.error is not None:
        said = step.error
        return answer_of_error(kind, step.stepId, said.code, said.message, said.data)
    answer = to_saga_answer(kind, step.result or {})
    if answer is None:
        wanted = "a CreateMessageResult" if kind == "sample" else "an ElicitResult"
        raise invalid(f"{where}.result", f"it is not {wanted}")
    return answer


def _pinned(step: CompletedStep) -> str:
    return digest(canonical([step.result, step.error.model_dump() if step.error else None]))
