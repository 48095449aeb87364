"""A call between two rounds, in the form that all adapters store and continue.

Some frameworks cannot run a tool again after its user has answered. Their snapshot stores the call:
the tool's name and arguments, the data of the pause and, at the end, the text for the model.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic_core import to_json

from anabranch._asking import Sampler
from anabranch._durable import has_expired
from anabranch._engine import Notice
from anabranch._text import encodable
from anabranch.errors import (
    AnabranchError,
    InvalidTokenError,
    OtherVersionError,
    StoreError,
    UnreachableError,
    masked,
)
from anabranch.messages import ResultBlock, TextBlock
from anabranch.models import ModelError
from anabranch.rounds import AnswerLike, Asked, InvalidAnswerError, Returned, Rounds
from anabranch.tool import Tool, require_tool, wrong_kind
from anabranch.tree import file_line, result_blocks

logger: logging.Logger = logging.getLogger("anabranch.adapters")

Answers: TypeAlias = Mapping[str, AnswerLike]
"""Answers to questions of one call, by the questions' ids."""


def require_both(tool: object, rounds: object) -> None:
    """Check the arguments of ``as_tool``, also for callers without types."""
    require_tool("as_tool()", tool)
    if not isinstance(rounds, Rounds):
        raise wrong_kind("as_tool()", "Rounds(keys=[…]) second", rounds)


@dataclass(frozen=True, slots=True)
class Failed:
    """The call has ended without a value; the model reads ``text``."""

    text: str


@dataclass(frozen=True, slots=True)
class PausedCall:
    """A call of a tool by a framework; no other call of the principal has the same ``call_id``."""

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
        """Run the first round, or the one after ``paused``; return its end, or the data to pause with.

        A round runs only with valid answers, or after a sleep has ended. After an invalid answer, the
        call pauses as before, and ``problem`` names the reason. An error that is raised after the first
        round leaves the call unchanged.
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
        """Return the model's text for the error that has ended the call; ``None`` if the call is open."""
        match error:
            case StoreError() | UnreachableError() | OtherVersionError() | InvalidAnswerError():
                return None
            case InvalidTokenError():
                ended = f"The call of {self.tool.name!r} has expired. Call the tool again."
                return ended if has_expired(error) else None
            case AnabranchError() if not isinstance(error, ModelError):
                return str(error)
            case _ if is_first:
                return None
            case _:  # the effects are undone, so the call has ended
                shown = masked(f"Error executing tool {self.tool.name}", error)
                logger.error("%s", shown, exc_info=error)
                return shown

    def _is_due(self, asked: Asked) -> bool:
        return asked.until is not None and asked.until <= self.rounds.clock.now()


def without_state(paused: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in paused.items() if name != "state"}


def notice_json(notice: Notice) -> dict[str, Any]:
    return {name: getattr(notice, name) for name in ("message", "level", "progress", "total")}


def as_blocks(value: object) -> tuple[ResultBlock, ...]:
    """Return the blocks of a tool's value that has files; a value without files has none."""
    blocks = result_blocks(value)
    return () if all(isinstance(block, TextBlock) for block in blocks) else blocks


def as_text(value: object) -> str:
    """Return a tool's value for a model: a text unchanged, a line for each file, else JSON."""
    if blocks := as_blocks(value):
        return "\n".join(map(block_text, blocks))
    return encodable(value) if isinstance(value, str) else to_json(encodable(value)).decode()


def block_text(block: ResultBlock) -> str:
    return block.text if isinstance(block, TextBlock) else file_line(block)


StoredCall: TypeAlias = dict[str, Any]
"""``tool``, ``arguments``, and ``paused`` or ``text``."""


@dataclass(frozen=True)
class AdaptedTool:
    """A tool of this library; the framework's tool has it in the attribute ``anabranch``."""

    tool: Tool[Any]
    rounds: Rounds

    async def begin(
        self, arguments: Mapping[str, Any], principal: str, call_id: str = ""
    ) -> StoredCall:
        call = {"tool": self.tool.name, "arguments": dict(arguments)}
        return await self.advance(call, None, principal, call_id)

    async def advance(
        self, call: StoredCall, answers: Answers | None, principal: str, call_id: str = ""
    ) -> StoredCall:
        if "text" in call:
            return call
        next_round = PausedCall(self.tool, call["arguments"], self.rounds, call_id, principal)
        ended = await next_round.next(call.get("paused"), answers, sampler=self.rounds.sampler)
        if isinstance(ended, Returned):
            return {**call, "text": as_text(ended.value)}
        if isinstance(ended, Failed):
            return {**call, "text": ended.text}
        return {**call, "paused": ended}


async def next_rounds(
    tools: Iterable[Any],
    calls: Mapping[str, StoredCall],
    answers: Mapping[str, Answers],
    principal: str,
) -> AsyncGenerator[tuple[str, StoredCall]]:
    """Run the next round of each of ``calls``; yield each call's id and new stored form.

    The first error of a round is raised after all other calls.
    """
    adapted: dict[str, AdaptedTool] = {
        each.name: each.anabranch for each in tools if hasattr(each, "anabranch")
    }
    failures: list[Exception] = []
    for call_id, call in calls.items():
        try:
            ended = await adapted[call["tool"]].advance(call, answers.get(call_id), principal)
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)
        else:
            yield call_id, ended
    if failures:
        raise failures[0]


def questions_of(calls: Mapping[str, StoredCall]) -> dict[str, dict[str, Any]]:
    return {
        name: {"tool": call["tool"], **without_state(call["paused"])}
        for name, call in calls.items()
        if "text" not in call
    }
