"""Calls whose later rounds run outside of the framework's agent: their stored form, and their rounds.

Some frameworks cannot run a tool a second time after its user has answered. They store such a call
in their snapshot, as JSON: the tool's name and arguments, the data of the pause and, at the end,
the text for the model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from anabranch.adapters._paused_call import (
    Answers,
    Failed,
    PausedCall,
    as_text,
    without_state,
)
from anabranch.rounds import Returned, Rounds
from anabranch.tool import Tool

StoredCall: TypeAlias = dict[str, Any]
"""``tool``, ``arguments``, and ``paused`` or ``text``."""


@dataclass(frozen=True)
class AdaptedTool:
    """A tool of ours behind a framework's tool, which holds it in its attribute ``anabranch``."""

    tool: Tool[Any]
    rounds: Rounds

    async def begin(
        self, arguments: Mapping[str, Any], principal: str, call_id: str = ""
    ) -> StoredCall:
        """Run the first round of a call; raises like :meth:`PausedCall.next`."""
        call = {"tool": self.tool.name, "arguments": dict(arguments)}
        return await self.advance(call, None, principal, call_id)

    async def advance(
        self, call: StoredCall, answers: Answers | None, principal: str, call_id: str = ""
    ) -> StoredCall:
        """Run the next round of an open call, and return its new stored form.

        Raises:
            Exception: if the round fails, as for :meth:`PausedCall.next`; the call is unchanged.
        """
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
    """Run the next rounds of ``calls``, by id; yield the new stored form of each immediately.

    Raises:
        Exception: if a call is unchanged because its round failed; the first such error, after all
            other calls.
    """
    adapted: dict[str, AdaptedTool] = {
        each.name: each.anabranch for each in tools if hasattr(each, "anabranch")
    }
    failures: list[Exception] = []
    for call_id, call in calls.items():
        try:
            ended = await adapted[call["tool"]].advance(call, answers.get(call_id), principal)
        except Exception as error:  # noqa: BLE001 - it is raised below
            failures.append(error)
        else:
            yield call_id, ended
    if failures:
        raise failures[0]


def questions_of(calls: Mapping[str, StoredCall]) -> dict[str, dict[str, Any]]:
    """Return the questions of the open calls, by call id."""
    return {
        name: {"tool": call["tool"], **without_state(call["paused"])}
        for name, call in calls.items()
        if "text" not in call
    }
