"""Answers from a file, ``--answers FILE``: its format, and which entry answers which question.

An entry without a ``key`` answers in order. Concurrent questions arrive in any order, so answers
for the user and answers for the model form two sequences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError, model_validator

from anabranch._asking import describe_entry
from anabranch._terminal.exits import UsageError
from anabranch._text import read_json_list
from anabranch.messages import ElicitReply, SampleReply, TextBlock

Kind: TypeAlias = Literal["elicit", "sample"]
ACTIONS = ("accept", "decline", "cancel", "sample")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str | None = None
    # Only the set of given fields counts; no code reads the defaults.
    accept: dict[str, JsonValue] | None = None
    decline: Literal[True] = True
    cancel: Literal[True] = True
    sample: str = ""

    @model_validator(mode="after")
    def _one_answer(self) -> _Entry:
        if len(self.model_fields_set - {"key"}) != 1:
            raise ValueError(f"needs exactly one of {', '.join(ACTIONS)}")
        return self

    @property
    def kind(self) -> Kind:
        return "sample" if "sample" in self.model_fields_set else "elicit"

    def reply(self) -> ElicitReply:
        if "accept" in self.model_fields_set:
            return ElicitReply(action="accept", content=self.accept)
        return ElicitReply(action="decline" if "decline" in self.model_fields_set else "cancel")

    def __str__(self) -> str:
        return self.model_dump_json(exclude_unset=True)


FORMS = 'Write {"accept": {…}}, {"decline": true}, {"cancel": true} or {"sample": "…"}.'

_FILE: TypeAdapter[list[_Entry]] = TypeAdapter(list[_Entry])


class Answers:
    """The answers of the file that no question has used yet."""

    def __init__(self, entries: Sequence[object], name: str = "answers") -> None:
        try:
            self._unused = _FILE.validate_python(entries)
        except ValidationError as error:
            raise UsageError(f"{name}: {describe_entry(error, 'answer')} {FORMS}") from error

    @classmethod
    def from_file(cls, path: Path) -> Answers:
        """Return the answers in ``path``, a JSON list."""
        return cls(read_json_list(path, "answer file", UsageError), str(path))

    @property
    def samples(self) -> bool:
        return any(entry.kind == "sample" for entry in self._unused)

    def elicit(self, step_id: str) -> ElicitReply | None:
        entry = self._take("elicit", step_id)
        return entry.reply() if entry is not None else None

    def sample(self, step_id: str) -> SampleReply | None:
        entry = self._take("sample", step_id)
        if entry is None:
            return None
        text = TextBlock(text=entry.sample)
        return SampleReply(content=(text,), model="answers", stop_reason="endTurn")

    def unused(self) -> list[str]:
        return [str(entry) for entry in self._unused]

    def _take(self, kind: Kind, step_id: str) -> _Entry | None:
        candidates = [entry for entry in self._unused if entry.kind == kind]
        names = names_of(step_id)
        keyed = (entry for entry in candidates if entry.key in names)
        in_order = (entry for entry in candidates if entry.key is None)
        entry = next(keyed, None) or next(in_order, None)
        if entry is not None:
            # By identity: the file may contain the same answer twice.
            self._unused = [other for other in self._unused if other is not entry]
        return entry


def names_of(step_id: str) -> frozenset[str]:
    """Return the names under which the file may refer to a step.

    ``pick/analyze#2/confirm.1~2`` is also ``pick/analyze#2/confirm.1``, ``confirm.1`` and
    ``confirm``.
    """
    first = first_attempt(step_id)
    return frozenset({step_id, first, first.rpartition("/")[2], key_of(step_id)}) - {""}


def first_attempt(step_id: str) -> str:
    return re.sub(r"~\d+$", "", step_id)


def key_of(step_id: str) -> str:
    return re.sub(r"\.\d+$", "", first_attempt(step_id).rpartition("/")[2])
