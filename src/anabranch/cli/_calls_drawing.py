"""Draws recorded calls as lines of text, for users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pydantic import JsonValue

from anabranch._durable import Listed, RecordedCall, RecordedRound, RecordedStep
from anabranch._text import json_line

if TYPE_CHECKING:
    from anabranch._durable import Replayed
    from anabranch.cli._calls_replaying import Undone

WIDTH = 70
"""Maximum characters of a value."""


def draw_list(calls: Sequence[Listed]) -> list[str]:
    if not calls:
        return ["No calls."]
    name, tool = max(len(each.id) for each in calls), max(len(each.tool) for each in calls)
    return [
        f"{each.id:<{name}}  {each.tool:<{tool}}  {each.state:<7}  {_date(each.started)}"
        f"  {each.version}".rstrip()
        for each in calls
    ]


def draw_call(call: RecordedCall) -> list[str]:
    waits = f" for {', '.join(call.waits_for)}" if call.waits_for else ""
    end = "expires" if call.state.is_open else "deleted after"
    facts = {
        "began": _date(call.started),
        end: _date(call.deadline),
        "continues at": None if call.waits_until is None else _date(call.waits_until),
        "caller": call.principal,
        "version": call.version,
        "run by": call.lease and f"{call.lease.worker} until {_date(call.lease.until)}",
        "arguments": _value(call.arguments),
        "returned": _value(call.value),
        "failed": call.error,
        "notices": str(call.notices or ""),
        "lines": ", ".join(call.lines),
        "but": None if call.is_complete else "another release has written a part of the call",
    }
    return [
        f"{call.id}  {call.tool}  {call.state}{waits}",
        *(f"  {name:<13} {fact}" for name, fact in facts.items() if fact),
        *(_round(each) for each in call.rounds),
        *_steps(call.steps),
    ]


def draw_replayed(found: Sequence[Replayed]) -> list[str]:
    return [line for each in found for line in _replayed(each)] or ["No open calls."]


def old_ways_of(found: Sequence[Replayed]) -> list[str]:
    """Return a line for each ``ctx.patched`` marker: how many open calls need its old code."""
    needed = Counter(name for each in found for name in each.old_ways)
    lines = [
        f"{needed[name]} of {len(found)} open calls need the old code of the marker {name!r}."
        for name in sorted(needed)
    ]
    if not lines and all(each.is_clean for each in found):
        return ["No open call needs the old code of a marker."]
    return lines


def draw_undone(done: Undone) -> list[str]:
    steps = [f"  undone  {each}" for each in done.undone]
    return [f"{done.id}  {done.tool}  {done.state}", *steps, *(f"  left    {n}" for n in done.left)]


def _round(each: RecordedRound) -> str:
    asks = f" {', '.join(each.asks)}" if each.asks else ""
    when = f"  {_date(each.ended)}" if each.ended is not None else ""
    worker = f"  in process {each.worker}" if each.worker else ""
    return f"  round {each.number:<7} {each.outcome}{asks}{when}{worker}"


def _steps(steps: Sequence[RecordedStep]) -> list[str]:
    names = [f"{'  ' * step.depth}{step.kind} {step.id.rpartition('/')[2]}" for step in steps]
    width = max(map(len, names), default=0)
    return [
        f"  {step.round:>3}  {name:<{width}}  {'; '.join(_facts(step))}".rstrip()
        for step, name in zip(steps, names, strict=True)
    ]


def _facts(step: RecordedStep) -> Iterator[str]:
    if isinstance(step.asked, dict):
        yield _short(json_line(step.asked.get("message") or step.asked.get("prompt")))
    if step.state == "open":
        yield "open"
    elif step.error is not None:
        yield f"failed: {_short(step.error)}"
    elif step.state == "done":
        yield f"→ {_value(step.value, 'null')}"
    if step.answered_by is not None:
        where = "" if step.answered_in is None else f" in round {step.answered_in}"
        yield f"from {_ANSWERER[step.answered_by]}{where}"
    if step.tokens is not None:
        yield f"{step.tokens} tokens"
    if step.undo is not None:
        yield f"undo {step.undo_name or '(without a name)'}: {step.undo}"


_ANSWERER = {"client": "the client", "page": "a page", "server": "the server's model"}


def _replayed(each: Replayed) -> Iterator[str]:
    following = f" {', '.join(each.next)}" if each.next else ""
    yield {
        "waits": f"{each.id}  {each.tool}  ok: replays to where it waits:{following}",
        "ended": f"{each.id}  {each.tool}  ok: replays to its end",
        "continues": f"{each.id}  {each.tool}  ok: continues{following and ' with' + following}",
        "drifts": f"{each.id}  {each.tool}  DRIFTS",
        "cannot be read": f"{each.id}  {each.tool}  cannot be read: {each.problem}",
    }[each.ended]
    if each.reworded:
        yield f"    asks again, in other words: {', '.join(each.reworded)}"
    if each.not_reached:
        yield f"    does not reach the question: {', '.join(each.not_reached)}"
    if each.old_ways:
        yield f"    runs the old code of the markers: {', '.join(each.old_ways)}"
    if each.drift is not None:
        yield f"    at        {each.drift.at}"
        yield f"    recorded  {each.drift.recorded}"
        yield f"    now       {each.drift.now}"
        if each.version:
            yield f"    waits for a process with version {each.version} of the code"


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def _value(value: JsonValue, nothing: str = "") -> str:
    return nothing if value is None else _short(json_line(value))


def _short(text: str) -> str:
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
