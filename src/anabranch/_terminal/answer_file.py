"""Answers from a file: ``--answers FILE``.

Owns the file's format and which entry answers which question. An entry with a ``key`` waits for
the step of that name; the others are taken in order, those for the person and those for the model
each in their own, because questions that are asked at once arrive in any order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError, model_validator

from anabranch._terminal.exits import UsageError
from anabranch.messages import ElicitReply, SampleReply, TextBlock

__all__ = ["Answers", "names_of"]

Kind: TypeAlias = Literal["elicit", "sample"]
ACTIONS = ("accept", "decline", "cancel", "sample")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str | None = None
    # Which of these is set decides; the defaults are never looked at.
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
        """The entry as the person's answer."""
        if "accept" in self.model_fields_set:
            return ElicitReply(action="accept", content=self.accept)
        return ElicitReply(action="decline" if "decline" in self.model_fields_set else "cancel")

    def __str__(self) -> str:
        return self.model_dump_json(exclude_unset=True)


_FILE: TypeAdapter[list[_Entry]] = TypeAdapter(list[_Entry])


class Answers:
    """The answers that are left.

    Raises:
        UsageError: an entry does not fit; the message names the entry and the field.
    """

    def __init__(self, entries: Sequence[object], name: str = "answers") -> None:
        try:
            self._left = _FILE.validate_python(entries)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            number, *field = problem["loc"]
            where = f", field {'.'.join(map(str, field))!r}" if field else ""
            what = problem["msg"].removeprefix("Value error, ")
            raise UsageError(f"{name}: answer {int(number) + 1}{where}: {what}.") from error

    @classmethod
    def from_file(cls, path: Path) -> Answers:
        """Return the answers in ``path``, a JSON list.

        Raises:
            UsageError: it cannot be read, or holds something else.
        """
        try:
            entries: object = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise UsageError(f"Cannot read the answers in {path}: {error.strerror}.") from error
        except ValueError as error:
            raise UsageError(f"The answers in {path} are not JSON: {error}.") from error
        if not isinstance(entries, list):
            raise UsageError(f"The answers in {path} must be a JSON list.")
        return cls(cast("list[object]", entries), str(path))

    @property
    def samples(self) -> bool:
        """Whether any entry that is left answers for the model."""
        return any(entry.kind == "sample" for entry in self._left)

    def elicit(self, step_id: str) -> ElicitReply | None:
        """Take the person's answer to this step, if there is one."""
        entry = self._take("elicit", step_id)
        return entry.reply() if entry is not None else None

    def sample(self, step_id: str) -> SampleReply | None:
        """Take the model's answer to this step, if there is one."""
        entry = self._take("sample", step_id)
        if entry is None:
            return None
        text = TextBlock(text=entry.sample)
        return SampleReply(content=(text,), model="answers", stop_reason="endTurn")

    def left(self) -> list[str]:
        """Return the entries that nothing has asked for."""
        return [str(entry) for entry in self._left]

    def _take(self, kind: Kind, step_id: str) -> _Entry | None:
        fitting = [entry for entry in self._left if entry.kind == kind]
        names = names_of(step_id)
        keyed = (entry for entry in fitting if entry.key in names)
        in_turn = (entry for entry in fitting if entry.key is None)
        entry = next(keyed, None) or next(in_turn, None)
        if entry is not None:
            # By identity: the same answer may stand in the file twice.
            self._left = [left for left in self._left if left is not entry]
        return entry


def names_of(step_id: str) -> frozenset[str]:
    """Return what a step may be called in the file.

    ``pick/analyze#2/confirm.1~2`` is the second attempt at the first ``confirm`` there: its full
    id, the id of the first attempt, and ``confirm`` with and without its number.
    """
    first = re.sub(r"~\d+$", "", step_id)
    last = first.rpartition("/")[2]
    return frozenset({step_id, first, last, re.sub(r"\.\d+$", "", last)}) - {""}
