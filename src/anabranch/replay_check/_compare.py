"""Compares two runs of the same round; the order of concurrent questions may differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from anabranch._engine import Ask, Call, Notice, codec_of
from anabranch.errors import (
    ContextUseError,
    NonDeterminismError,
    SerializationError,
    SuspensionError,
)
from anabranch.replay_check._rules import RULES, Finding
from anabranch.replay_check._static_check import place_of
from anabranch.tool import Tool

NOTHING = "nothing"


@dataclass(slots=True)
class Run:
    """One run of one round: it is ``waiting`` for answers, or ended with a ``value`` or an ``error``."""

    call: Call[Any]
    notices: dict[tuple[str, int], Notice]
    waiting: bool = False
    asks: dict[str, Ask] = field(default_factory=dict[str, Ask])
    value: object = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Difference:
    rule: str
    found: str
    step: str | None = None
    first: str | None = None
    second: str | None = None
    remedy: str = ""

    def at(self, place: tuple[str, int]) -> Finding:
        reason, fix = RULES[self.rule]
        reason, fix = reason.format(self.found), fix.format(self.remedy)
        return Finding(self.rule, *place, 1, reason, fix, self.step, self.first, self.second)


def troubles(tool: Tool[Any], run: Run) -> list[Finding]:
    """Return the findings that one run alone shows: reasons why a replay is impossible."""
    match run.error:
        case NonDeterminismError() as error:
            found = _refused(error)
        case SuspensionError() as error:
            found = _Difference("not-suspended", _quoted(error.step_ids[0]), error.step_ids[0])
        case SerializationError() as error:
            step = str(error.facts["step_id"])
            found = _Difference("unrecordable-value", _quoted(step), step)
        case _:
            return []
    return [found.at(place_of(tool))]


def differences(
    tool: Tool[Any], first: Run, second: Run, interrupted: str | None = None
) -> list[Finding]:
    """Return the differences of ``second``, the replay, from ``first``."""
    if interrupted is not None:
        found = [_Difference("interrupted-step", _quoted(interrupted), interrupted)]
    elif isinstance(second.error, NonDeterminismError):
        found = [_refused(second.error)]
    else:
        found = [*_recorded(first, second), *_asked(first.asks, second.asks)]
        found += [*_noticed(first, second), *_ended(tool, first, second)]
    return [each.at(place_of(tool)) for each in found]


def _refused(error: NonDeterminismError) -> _Difference:
    step = error.step_id
    if isinstance(error, ContextUseError):
        reason = str(error).removesuffix(f" {error.remedy}")
        named = None if step == "ctx" else step
        return _Difference("context-use", reason, named, remedy=error.remedy)
    return _Difference("different-step", _quoted(step), step, error.expected, error.found)


def _recorded(first: Run, second: Run) -> Iterator[_Difference]:
    for step, entry in second.call.journal.entries.items():
        if step not in first.call.journal.entries:
            yield _Difference("different-step", _quoted(step), step, NOTHING, entry.kind)


def _asked(first: dict[str, Ask], second: dict[str, Ask]) -> Iterator[_Difference]:
    for step in [*first, *(step for step in second if step not in first)]:
        one, other = first.get(step), second.get(step)
        if one is None or other is None:
            asked = [NOTHING if ask is None else _shown(_request(ask)) for ask in (one, other)]
            yield _Difference("different-asks", _quoted(step), step, *asked)
        elif (sides := _apart(one, other))[0] != sides[1]:
            yield _Difference("different-ask", _quoted(step), step, *sides)


def _apart(one: Ask, other: Ask) -> tuple[str, ...]:
    if one.kind != other.kind:
        return one.kind, other.kind
    left, right = _request(one), _request(other)
    names = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    if not names:  # the fingerprint covers more than the request
        return one.fingerprint, other.fingerprint
    return tuple(_shown({name: side.get(name) for name in names}) for side in (left, right))


def _request(ask: Ask) -> dict[str, JsonValue]:
    shown: dict[str, JsonValue] = ask.request.model_dump(mode="json", exclude_none=True)
    return shown


def _noticed(first: Run, second: Run) -> Iterator[_Difference]:
    journal = first.call.journal
    folded = [f"{step}/" for step, entry in journal.entries.items() if entry.kind == "branch"]
    for place in [*first.notices, *(each for each in second.notices if each not in first.notices)]:
        path, number = place
        if any(f"{path}/".startswith(branch) for branch in folded):
            continue  # a branch that has ended is not run again
        one, other = first.notices.get(place), second.notices.get(place)
        if one != other:
            name = f"{number} of `{path}`"
            yield _Difference("different-notice", name, path, _notice(one), _notice(other))


def _notice(notice: Notice | None) -> str:
    if notice is None:
        return NOTHING
    far = [f"{part:g}" for part in (notice.progress, notice.total) if part is not None]
    return _shown(" ".join([*far, notice.message]))


def _ended(tool: Tool[Any], first: Run, second: Run) -> Iterator[_Difference]:
    sides = _outcome(tool, first), _outcome(tool, second)
    if sides[0] == sides[1]:
        return
    what = "outcome"
    if first.error is not None and second.error is not None:
        what = "error"
    elif first.error is second.error is None and not (first.waiting or second.waiting):
        what = "value"
    yield _Difference("different-outcome", what, None, *sides)


def _outcome(tool: Tool[Any], run: Run) -> str:
    if run.waiting:
        return "waits for answers"
    if run.error is not None:
        return f"{type(run.error).__name__}: {run.error}"
    try:
        return _shown(codec_of(tool.returned_by).encode("", run.value))
    except SerializationError:
        # Such a value cannot be returned to a caller, and mostly equals only itself.
        return type(run.value).__qualname__


def _shown(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _quoted(step: str) -> str:
    return f"`{step}`"
