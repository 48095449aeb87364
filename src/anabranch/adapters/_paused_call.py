"""A call between two rounds, as all adapters pause with it and continue it.

What a framework stores of a call is plain JSON: the questions, the sealed state, and what was wrong with
the last answers, if something was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic_core import to_json

from anabranch._asking.sampling import Sampler
from anabranch._encodable import encodable
from anabranch._engine import Notice
from anabranch.errors import AnabranchError, StoreError, UnreachableError
from anabranch.models import ModelError
from anabranch.rounds import AnswerLike, Asked, InvalidAnswerError, Returned, Rounds
from anabranch.tool import Tool

__all__ = ["Answers", "PausedCall", "as_text", "is_for_model", "notice_json", "without_state"]

Answers: TypeAlias = Mapping[str, AnswerLike]
"""Answers to questions of one call, by the questions' ids."""


@dataclass(frozen=True, slots=True)
class PausedCall:
    """A call that a framework makes of a tool.

    Attributes:
        tool, arguments: what is called.
        rounds: runs its rounds.
        call_id: what the framework names it; no other call of the principal has this name.
        principal: who calls.
    """

    tool: Tool[Any]
    arguments: Mapping[str, Any]
    rounds: Rounds
    call_id: str = ""
    principal: str = ""

    async def next(
        self,
        paused: Mapping[str, Any] | None = None,
        answers: Answers | None = None,
        *,
        sampler: Sampler | None = None,
        on_notice: Callable[[Notice], Awaitable[object]] | None = None,
    ) -> Returned[Any] | dict[str, Any]:
        """Run the first round, or the one after ``paused``; return the value, or what to pause with.

        Nothing runs without answers, unless a sleep has ended, nor with an invalid answer: then the
        call pauses as before, and ``problem`` says what is wrong.

        Raises:
            Exception: as ``Rounds.run``; ``ValueError``, if it was not paused here.
        """
        asked = None if paused is None else Asked.from_json(paused)
        if asked is not None and not answers and not self._is_due(asked):
            return asked.to_json()
        try:
            ended = await self.rounds.run(
                self.tool,
                self.arguments,
                state=None if asked is None else asked.state,
                answers=answers,
                call_id=self.call_id,
                principal=self.principal,
                sampler=sampler,
                on_notice=on_notice,
            )
        except InvalidAnswerError as error:
            if asked is None:
                raise
            return {**asked.to_json(), "problem": str(error)}
        return ended if isinstance(ended, Returned) else ended.to_json()

    def _is_due(self, asked: Asked) -> bool:
        return asked.until is not None and asked.until <= self.rounds.clock.now()


def without_state(paused: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a person is shown of it: the state is of no use to anyone who asks."""
    return {name: value for name, value in paused.items() if name != "state"}


def notice_json(notice: Notice) -> dict[str, Any]:
    """Return a notice as plain JSON."""
    return {name: getattr(notice, name) for name in ("message", "level", "progress", "total")}


def as_text(value: object) -> str:
    """Return a tool's value as a model reads it: a text as it is, anything else as JSON."""
    return encodable(value) if isinstance(value, str) else to_json(encodable(value)).decode()


def is_for_model(error: Exception) -> bool:
    """Whether a model may read the message of ``error``; others are the application's, or secret."""
    private = isinstance(error, StoreError | ModelError | UnreachableError)
    return isinstance(error, AnabranchError) and not private
