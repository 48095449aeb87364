"""Makes one text of the answers of several branches; after a failure, a note names the substitute."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, get_args

from anabranch._aio import all_or_first_error
from anabranch.errors import AnabranchError, StoreError, ToolError
from anabranch.models import ModelError

logger: logging.Logger = logging.getLogger("anabranch.agents")

Recombiner: TypeAlias = Literal["none", "concatenate", "llm_merge", "llm_vote", "llm_judge"]
AskModel: TypeAlias = Callable[[str], Awaitable[str]]
"""Sends a model one prompt, outside any conversation, and returns its reply."""

JUDGES = 3
_NUMBER = re.compile(r"\d{1,9}")
_OPTION = re.compile(r"\boption\W{0,3}(\d{1,9})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BranchAnswer:
    """The answer of one branch; ``text`` is blank if the branch has failed."""

    name: str
    prompt: str
    text: str


@dataclass(frozen=True, slots=True)
class Recombined:
    """The combined answer of several branches.

    Attributes:
        text: the combined text; empty if no text was requested, or no branch has answered.
        note: an explanation: which branch was chosen and why, or why no text was combined.
        chosen: the name of the branch whose answer is ``text``; ``None`` if ``text`` combines
            several answers.
    """

    text: str
    note: str
    chosen: str | None = None


async def recombine(
    recombiner: str, answers: Sequence[BranchAnswer], ask: AskModel, *, judges: int = JUDGES
) -> Recombined:
    """Join the ``answers`` that are not blank into one text, by ``recombiner`` in any letter case."""
    name = recombiner.strip().lower()
    if name not in get_args(Recombiner):
        known = ", ".join(get_args(Recombiner))
        raise ToolError(f"There is no recombiner {recombiner!r}. Recombiners: {known}.")
    given = [answer for answer in answers if answer.text.strip()]
    if name == "none":
        return Recombined("", "Not recombined, as none was asked for.")
    if not given:
        return Recombined("", f"Nothing to recombine ({name}): no branch has answered.")
    if name == "concatenate":
        return Recombined(_numbered(given), f"Concatenated {len(given)} answers.")
    if len(given) == 1:
        only = given[0]
        return Recombined(
            only.text, f"Only {only.name} has answered: {name} was not needed.", only.name
        )
    ways: dict[str, Callable[[], Awaitable[Recombined]]] = {
        "llm_merge": partial(_merge, given, ask),
        "llm_vote": partial(_vote, given, ask, judges),
        "llm_judge": partial(_judge, given, ask),
    }
    return await ways[name]()


async def _merge(answers: Sequence[BranchAnswer], ask: AskModel) -> Recombined:
    merged = await _asked(
        ask,
        f"{_options(answers)}\n\nMerge these {len(answers)} texts into a single one that contains"
        " whatever matters in any of them and says nothing twice. Reply with the text alone.",
    )
    if isinstance(merged, str):
        return Recombined(merged, f"llm_merge: {len(answers)} answers were merged.")
    return Recombined(
        _numbered(answers), f"llm_merge {merged.what}; the answers are concatenated instead."
    )


async def _vote(answers: Sequence[BranchAnswer], ask: AskModel, judges: int) -> Recombined:
    prompt = (
        f"{_options(answers)}\n\nWhich option is the best? Reply with its number alone,"
        f" from 1 to {len(answers)}."
    )
    ballots = await all_or_first_error([partial(_asked, ask, prompt) for _ in range(judges)])
    votes = Counter(vote for ballot in ballots if (vote := _ballot(ballot, len(answers))))
    missing = judges - votes.total()
    void = f" {missing} of {judges} votes did not count.{_why(ballots)}" if missing else ""
    if not votes:
        first = answers[0]
        note = f"llm_vote: no vote counted; the first answer, {first.name}, is taken instead."
        return Recombined(first.text, note + void, first.name)
    most = max(votes.values())
    best = sorted(number for number, count in votes.items() if count == most)
    chosen = answers[best[0] - 1]
    counted = ", ".join(f"{answers[number - 1].name}: {votes[number]}" for number in sorted(votes))
    tie = f" A tie of {len(best)}: the first of them is taken." if len(best) > 1 else ""
    note = f"llm_vote chose {chosen.name} (votes: {counted}).{tie}{void}"
    return Recombined(chosen.text, note, chosen.name)


async def _judge(answers: Sequence[BranchAnswer], ask: AskModel) -> Recombined:
    verdict = await _asked(
        ask,
        f"{_options(answers)}\n\nJudge these {len(answers)} options. Begin your reply with"
        ' "Option N", N being the number of the best one; then give the reason in a sentence.',
    )
    first = answers[0]
    if not isinstance(verdict, str):
        note = f"llm_judge {verdict.what}; the first answer, {first.name}, is taken instead."
        return Recombined(first.text, note, first.name)
    chosen = _chosen_by(verdict, answers)
    if chosen is None:
        return Recombined(
            verdict, "llm_judge named none of the options; its own words are taken instead."
        )
    return Recombined(chosen.text, f"llm_judge chose {chosen.name}: {verdict}", chosen.name)


@dataclass(frozen=True, slots=True)
class _NoReply:
    what: str


async def _asked(ask: AskModel, prompt: str) -> str | _NoReply:
    """Return the model's reply, or the reason for its failure; never raise."""
    try:
        text = (await ask(prompt)).strip()
    except Exception as error:
        if isinstance(error, AnabranchError | ModelError) and not isinstance(error, StoreError):
            return _NoReply(f"failed ({str(error).rstrip('.')})")
        # An error here would discard the answers of all branches.
        logger.exception("a recombiner's model failed")
        return _NoReply("failed")
    return text or _NoReply("got no reply")


def _why(ballots: Sequence[str | _NoReply]) -> str:
    reasons = {ballot.what: None for ballot in ballots if isinstance(ballot, _NoReply)}
    return "".join(f" A judge {reason}." for reason in reasons)


def _ballot(ballot: str | _NoReply, options: int) -> int | None:
    found = _NUMBER.search(ballot) if isinstance(ballot, str) else None
    number = int(found.group()) if found is not None else 0
    return number if 1 <= number <= options else None


def _chosen_by(verdict: str, answers: Sequence[BranchAnswer]) -> BranchAnswer | None:
    for found in _OPTION.finditer(verdict):
        if number := _ballot(found.group(1), len(answers)):
            return answers[number - 1]
    alike = [
        answer
        for answer in answers
        if _quotes(verdict, answer.text.strip()) or _quotes(answer.text, verdict)
    ]
    return alike[0] if len(alike) == 1 else None


def _quotes(text: str, quoted: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(quoted)}(?!\w)", text) is not None


def _numbered(answers: Sequence[BranchAnswer]) -> str:
    return "\n\n".join(
        f"{number}. {answer.name}: {answer.text.strip()}"
        for number, answer in enumerate(answers, 1)
    )


def _options(answers: Sequence[BranchAnswer]) -> str:
    return "\n\n".join(
        f"Option {number}, in reply to {answer.prompt!r}:\n{answer.text.strip()}"
        for number, answer in enumerate(answers, 1)
    )
