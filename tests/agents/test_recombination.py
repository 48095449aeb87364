"""Recombination: the chosen text, its reason, and the result when the model fails."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from anabranch import ToolError
from anabranch.agents._recombination import BranchAnswer, recombine
from anabranch.models import ModelError
from tests.agents.harness import interrupted

ANSWERS = [
    BranchAnswer("b1", "short", "one"),
    BranchAnswer("b2", "long", "two two"),
    BranchAnswer("b3", "x", "3"),
]


class Saying:
    """A model that gives its replies in order, and records its requests."""

    def __init__(self, *replies: str | Exception) -> None:
        self._replies = list(replies)
        self.asked: list[str] = []

    async def __call__(self, prompt: str) -> str:
        self.asked.append(prompt)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


async def made(how: str, ask: Saying, answers: Sequence[BranchAnswer] = ANSWERS) -> tuple[str, str]:
    done = await recombine(how, answers, ask)
    return done.text, done.note


async def test_the_recombiner_none_makes_no_text() -> None:
    assert await made("none", Saying()) == ("", "Not recombined, as none was asked for.")


async def test_concatenate_numbers_the_answers() -> None:
    text, note = await made("Concatenate", Saying())
    assert text == "1. b1: one\n\n2. b2: two two\n\n3. b3: 3"
    assert note == "Concatenated 3 answers."


async def test_merge_sends_one_request_with_the_answers_alone() -> None:
    model = Saying("one and two")
    assert await made("llm_merge", model) == ("one and two", "llm_merge: 3 answers were merged.")
    [asked] = model.asked
    assert all(answer.text in asked and answer.prompt in asked for answer in ANSWERS)


@pytest.mark.parametrize("reply", [RuntimeError("no"), "  "])
async def test_a_merge_that_fails_falls_back_to_concatenation(
    reply: str | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "anabranch.agents")
    text, note = await made("llm_merge", Saying(reply))
    assert text.startswith("1. b1: one")
    assert note.endswith("the answers are concatenated instead.")


VOTES: dict[str, tuple[list[str | Exception], str, str]] = {
    "a majority": (["2", "2", "1"], "b2", "llm_vote chose b2 (votes: b1: 1, b2: 2)."),
    "numbers in words": (["Option 3!", "3.", "I say 3"], "b3", "chose b3 (votes: b3: 3)."),
    "a tie": (["3", "2", "?"], "b2", "A tie of 2: the first of them is taken. 1 of 3 votes did"),
    "out of range": (["9", "0", "2"], "b2", "(votes: b2: 1). 2 of 3 votes did not count."),
    "no votes": (["?", "", "17"], "b1", "no vote counted; the first answer, b1, is taken instead."),
    "failed judges": ([OSError(), OSError(), "2"], "b2", "2 of 3 votes did not count."),
}


@pytest.mark.parametrize("name", VOTES)
async def test_the_first_answer_with_most_votes_is_chosen(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "anabranch.agents")
    replies, chosen, note = VOTES[name]
    done = await recombine("llm_vote", ANSWERS, Saying(*replies))
    assert done.chosen == chosen
    assert done.text == next(answer.text for answer in ANSWERS if answer.name == chosen)
    assert note in done.note


async def test_there_are_as_many_votes_as_judges() -> None:
    model = Saying(*["1"] * 5)
    await recombine("llm_vote", ANSWERS, model, judges=5)
    assert len(model.asked) == 5


VERDICTS = {
    "Option 2: it is longer.": ("b2", "two two", "llm_judge chose b2: Option 2: it is longer."),
    "I prefer option **3**, as it is short": ("b3", "3", "llm_judge chose b3"),
    "The best is: two two": ("b2", "two two", "llm_judge chose b2"),
    "Option 9, clearly": (None, "Option 9, clearly", "its own words are taken instead."),
    "None of them": (None, "None of them", "its own words are taken instead."),
    " ": ("b1", "one", "llm_judge got no reply; the first answer, b1, is taken instead."),
}


@pytest.mark.parametrize("verdict", VERDICTS)
async def test_a_judge_chooses_by_number_or_by_quoting(verdict: str) -> None:
    chosen, text, note = VERDICTS[verdict]
    done = await recombine("llm_judge", ANSWERS, Saying(verdict))
    assert (done.chosen, done.text) == (chosen, text)
    assert note in done.note


async def test_a_judge_that_fails_leaves_the_first_answer(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a model raises, the answers of the branches must not be lost."""
    text, note = await made("llm_judge", Saying(RuntimeError("secret")))
    assert (text, note) == ("one", "llm_judge failed; the first answer, b1, is taken instead.")
    [logged] = caplog.records
    assert logged.message == "a recombiner's model failed"
    assert str(logged.exc_info and logged.exc_info[1]) == "secret"


@pytest.mark.parametrize(
    ("how", "reason"),
    {
        "llm_merge": "llm_merge failed (Out of ink); the answers are concatenated instead.",
        "llm_vote": "3 of 3 votes did not count. A judge failed (Out of ink).",
        "llm_judge": "llm_judge failed (Out of ink); the first answer, b1, is taken instead.",
    }.items(),
)
@pytest.mark.parametrize("error", [ModelError("Out of ink."), ToolError("Out of ink.")])
async def test_an_error_with_a_public_message_says_why_there_is_no_verdict(
    how: str, reason: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    _, note = await made(how, Saying(error, error, error))
    assert note.endswith(reason)
    assert caplog.records == []


async def test_cancelling_a_judge_cancels_the_recombination() -> None:
    judging = asyncio.Event()

    async def judge(_: str) -> str:
        judging.set()
        await asyncio.Event().wait()
        return "never"

    await interrupted(recombine("llm_judge", ANSWERS, judge), judging)


@pytest.mark.parametrize("how", ["llm_merge", "llm_vote", "llm_judge"])
async def test_one_answer_needs_no_model_and_no_answer_is_not_an_error(how: str) -> None:
    answers = [BranchAnswer("b1", "p", " "), BranchAnswer("b2", "p", "two")]
    done = await recombine(how, answers, Saying())
    assert (done.text, done.chosen) == ("two", "b2")
    assert f"Only b2 has answered: {how} was not needed." == done.note
    assert (await recombine(how, answers[:1], Saying())).text == ""


async def test_an_unknown_recombiner_is_refused_with_a_list_of_all() -> None:
    with pytest.raises(ToolError, match=r"no recombiner 'mix'.*none, concatenate, llm_merge"):
        await recombine("mix", ANSWERS, Saying())
