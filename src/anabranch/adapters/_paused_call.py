"""A call between two rounds, as all adapters pause with it and continue it.

What a framework stores of a call is plain JSON: the questions, the sealed state, and what was wrong with
the last answers, if something was.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic_core import to_json

from anabranch._asking.sampling import Sampler
from anabranch._engine import Notice
from anabranch._sealing import has_expired
from anabranch._text import encodable
from anabranch.errors import (
    AnabranchError,
    InvalidTokenError,
    OtherVersionError,
    StoreError,
    UnreachableError,
    masked,
)
from anabranch.models import ModelError
from anabranch.rounds import AnswerLike, Asked, InvalidAnswerError, Returned, Rounds
from anabranch.tool import Tool

logger: logging.Logger = logging.getLogger("anabranch.adapters")

Answers: TypeAlias = Mapping[str, AnswerLike]
"""Answers to questions of one call, by the questions' ids."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The call has ended without a value; the model reads ``text``."""

    text: str


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
    ) -> Returned[Any] | Failed | dict[str, Any]:
        """Run the first round, or the one after ``paused``; return how it ends, or what to pause with.

        Nothing runs without answers, unless a sleep has ended, nor with an invalid answer: then the
        call pauses as before, and ``problem`` says what is wrong. An error that the model may not read
        is logged, and the model reads its id.

        Raises:
            StoreError, UnreachableError: if the store does not answer; this and the next two leave
                the call as it was, to be continued later.
            OtherVersionError: it waits for other code.
            InvalidTokenError: if the state is another caller's, or was answered differently before.
            ValueError: it was not paused here.
            Exception: what the tool raises in the first round: that is the framework's affair, as
                with any tool.
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
        except Exception as error:
            if asked is not None and isinstance(error, InvalidAnswerError):
                return {**asked.to_json(), "problem": str(error)}
            if (text := self._end(error, is_first=asked is None)) is None:
                raise
            return Failed(text)
        return ended if isinstance(ended, Returned) else ended.to_json()

    def _end(self, error: Exception, *, is_first: bool) -> str | None:
        """Return what the model reads of the error that has ended the call; ``None`` if it has not."""
        match error:
            case StoreError() | UnreachableError() | OtherVersionError() | InvalidAnswerError():
                return None
            case InvalidTokenError():
                return str(error) if has_expired(error) else None
            case AnabranchError() if not isinstance(error, ModelError):
                return str(error)
            case _ if is_first:
                return None
            case _:  # its effects are undone, so that nothing can continue it
                shown = masked(f"Error executing tool {self.tool.name}", error)
                logger.error("%s", shown, exc_info=error)
                return shown

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
