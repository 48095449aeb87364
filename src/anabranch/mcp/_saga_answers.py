"""The answers in ``tools/resumeSaga``: every open step answered, no earlier answer changed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from anabranch._asking.answerer import answer_of_error
from anabranch._durable.states import digest
from anabranch._engine import Answer, Journal, canonical
from anabranch._sealing import SagaClaims
from anabranch.errors import InvalidTokenError
from anabranch.mcp._protocol import to_saga_answer
from anabranch.mcp._saga_params import invalid, quoted
from anabranch.mcp._saga_shapes import SagaStepResult

logger: logging.Logger = logging.getLogger("anabranch.mcp")


def answers_in(
    steps: Sequence[SagaStepResult], journal: Journal, claims: SagaClaims
) -> dict[str, Answer]:
    """Return the answers to the open steps, and record their digests in ``claims``.

    Raises:
        MCPError: a step is unknown, missing, given twice, or does not answer its question.
        InvalidTokenError: an earlier answer has been changed.
    """
    answers: dict[str, Answer] = {}
    open_steps = journal.questions
    given: set[str] = set()
    for index, step in enumerate(steps):
        where = f"completedSteps[{index}]"
        if step.step_id in given:
            raise invalid(f"{where}.stepId", f"step {quoted(step.step_id)} is given twice")
        given.add(step.step_id)
        if (step.result is None) == (step.error is None):
            raise invalid(where, "give either result or error")
        pinned = _pinned(step)
        if step.step_id in open_steps:
            answers[step.step_id] = _answer(step, open_steps[step.step_id][0], where)
            claims.answered[step.step_id] = pinned
        elif step.step_id not in claims.answered:
            raise invalid(f"{where}.stepId", f"step {quoted(step.step_id)} was not asked")
        elif claims.answered[step.step_id] != pinned:
            logger.warning("a saga token was refused: the answer to %r has changed", step.step_id)
            raise InvalidTokenError
    if missing := sorted({*open_steps, *claims.answered} - given):
        raise invalid("completedSteps", f"the steps {missing} are missing")
    return answers


def _answer(step: SagaStepResult, kind: str, where: str) -> Answer:
    if step.error is not None:
        said = step.error
        return answer_of_error(kind, step.step_id, said.code, said.message, said.data)
    answer = to_saga_answer(kind, step.result or {})
    if answer is None:
        wanted = "a CreateMessageResult" if kind == "sample" else "an ElicitResult"
        raise invalid(f"{where}.result", f"it is not {wanted}")
    return answer


def _pinned(step: SagaStepResult) -> str:
    return digest(canonical([step.result, step.error.model_dump() if step.error else None]))
