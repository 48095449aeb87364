"""The inputs of a call: a tool's arguments, and the answerer of the tool's questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from anabranch._schemas import misfits_of, read_pairs
from anabranch._terminal import UsageError, failing_as
from anabranch._text import read_json

if TYPE_CHECKING:
    from anabranch._terminal import Answers, Console, Respondent
    from anabranch.models import StreamingSampler


def new_respondent(console: Console, model: str | None, answers: Path | None) -> Respondent:
    from anabranch._terminal import Respondent

    return Respondent(console, sampler=open_sampler(model), answers=read_answers(answers))


def open_sampler(model: str | None, *, cache: bool = False) -> StreamingSampler | None:
    """Return the model called ``model``; ``None`` without a name, also an empty one."""
    if not model:
        return None
    from anabranch.models import ModelError, open_model

    with failing_as(UsageError, ModelError):
        return open_model(model, cache=cache)


def read_answers(path: Path | None) -> Answers | None:
    if path is None:
        return None
    from anabranch._terminal import Answers

    return Answers.from_file(path)


def read_arguments(
    pairs: Iterable[str], json_text: str | None, schema: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments in ``json_text``, overridden by those in ``pairs``."""
    arguments = _read_object(json_text) if json_text is not None else {}
    typed = list(pairs)
    try:
        values = {**arguments, **read_pairs(typed, schema)}
        # Tools ignore arguments that hosts add, but a user who types a name means it.
        if not schema.get("additionalProperties") and "properties" in schema:
            _check_known(_names(typed), schema["properties"])
    except ValueError as error:
        # The tool would name missing arguments, and does not run: name them here.
        given = dict.fromkeys([*arguments, *_names(typed)])
        known = schema.get("properties", given)
        missing = [
            f"{name} is missing." for name in schema.get("required", ()) if name not in given
        ]
        unknown = [
            f"{name}: there is no such parameter; there are: {', '.join(known)}."
            for name in given
            if name not in known and not schema.get("additionalProperties")
        ]
        others = {name: arguments[name] for name in {*arguments} - {*_names(typed)}}
        wrong = [f"{name}: {why}." for name, why in misfits_of(others, schema)]
        said = [str(error)] if str(error) else []
        raise UsageError(" ".join([*said, *wrong, *missing, *unknown])) from None
    return values


def _check_known(names: Iterable[str], known: Iterable[str]) -> None:
    if {*names}.difference(known):
        raise ValueError


def _names(pairs: Iterable[str]) -> Iterable[str]:
    parts = (pair.partition("=") for pair in pairs)
    return (name for name, equals, _ in parts if name and equals)


def _read_object(text: str) -> dict[str, Any]:
    try:
        value: object = read_json(text)
    except ValueError as error:
        raise UsageError(f"--json is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise UsageError("--json must be a JSON object of the tool's arguments.")
    return cast("dict[str, Any]", value)
