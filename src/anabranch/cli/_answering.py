"""The answerer of a tool's questions and samples, as the options of a command choose it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch._terminal import UsageError

if TYPE_CHECKING:
    from anabranch._asking import AnsweringPolicy, Sampler
    from anabranch._terminal import Answers, Console, Respondent


def new_respondent(console: Console, model: str | None, answers: Path | None) -> Respondent:
    """Return the respondent that the options describe.

    Raises:
        UsageError: if the model cannot be opened, or the answers cannot be read.
    """
    from anabranch._terminal import Respondent

    return Respondent(console, sampler=open_sampler(model), answers=read_answers(answers))


def new_policy(never_for: Sequence[str], *, confirm: bool, most: int | None) -> AnsweringPolicy:
    """Return the policy that decides how samples are answered.

    Raises:
        UsageError: if the limit is not positive, or a name is empty.
    """
    from anabranch._asking import AnsweringPolicy

    try:
        return AnsweringPolicy(
            confirm_samples=confirm,
            max_samples_per_minute=most,
            never_for_tools=never_for,
            never_for_servers=never_for,
        )
    except ValueError as error:
        raise UsageError(f"{error}.") from error


def open_sampler(model: str | None) -> Sampler | None:
    """Return the model named ``model``; ``None`` without a name.

    Raises:
        UsageError: if the model cannot be opened.
    """
    if not model:
        return None
    from anabranch.models import ModelError, open_model

    try:
        return open_model(model)
    except ModelError as error:
        raise UsageError(str(error)) from error


def read_answers(path: Path | None) -> Answers | None:
    """Return the answers in the file at ``path``; ``None`` without a path.

    Raises:
        UsageError: if the file cannot be read.
    """
    if path is None:
        return None
    from anabranch._terminal import Answers

    return Answers.from_file(path)
