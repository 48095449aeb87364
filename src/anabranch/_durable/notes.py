"""Notes on a round: what those who look at a call later want to know of it, and no run needs.

A store has the state after a round, its answers and the effects in it. The notes add when the round
ended and in which process, what was asked, and what was recorded after the last effect.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import JsonValue

from anabranch._durable.entries import dump_entry
from anabranch._engine import Ask, Entry
from anabranch.messages import SampleRequest, text_of

MAX_PROMPT = 2_000
"""Characters of a prompt that are noted: each sample of a call repeats the conversation before it."""


@dataclass(frozen=True, slots=True)
class Notes:
    """What is noted of one round.

    Attributes:
        at: when it ended, if that was noted.
        worker: in which process; empty if that was not noted.
        asked: what each open question asks: the request, of a sample the end of its prompt.
        entries: what was recorded after its last effect, as ``dump_entry`` writes it.
    """

    at: float | None = None
    worker: str = ""
    asked: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    entries: Mapping[str, str] = field(default_factory=dict[str, str])


def notes_text(
    at: float,
    worker: str,
    *,
    asks: Iterable[Ask],
    entries: Mapping[str, Entry],
) -> str:
    """Return the notes on a round that ends now, as text."""
    noted = {
        "at": round(at, 3),
        "worker": worker,
        "asked": {ask.step_id: _request(ask) for ask in asks},
        "entries": {step_id: dump_entry(entry) for step_id, entry in entries.items()},
    }
    return json.dumps(
        {name: value for name, value in noted.items() if value}, separators=(",", ":")
    )


def load_notes(text: str) -> Notes:
    """Return the notes again; none for a round with which a line of a call begins."""
    if not text:
        return Notes()
    noted: dict[str, Any] = json.loads(text)
    return Notes(**noted)


def _request(ask: Ask) -> JsonValue:
    request = ask.request
    if isinstance(request, SampleRequest):
        prompt = text_of(request.messages[-1].content) if request.messages else ""
        return {"prompt": prompt[-MAX_PROMPT:], "messages": len(request.messages)}
    shown: JsonValue = request.model_dump(mode="json", exclude_none=True)
    return shown
