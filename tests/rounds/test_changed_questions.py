"""Requests to a model that a deployment has changed, and their cost in the budget."""

from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import AnswerError, BranchContext, Elicitation, tool
from anabranch.messages import SampleRequest
from anabranch.rounds import Asked, Returned, Rounds
from anabranch.tool import Tool
from tests.durable.stores import Modelled

SAMPLE = "advise/inside#1/sample.1"
LONG = "Please read all of this. " * 100


class Number(BaseModel):
    n: int


@pytest.fixture(params=["sealed", "stored"])
def rounds(request: pytest.FixtureRequest) -> Rounds:
    store = Modelled() if request.param == "stored" else None
    return Rounds(keys=["a key of the tests, which is long enough"], store=store)


def advising(prompt: str) -> Tool[str]:
    @tool(name="advise")
    async def advise(ctx: BranchContext) -> str:
        async def inside(branch: BranchContext) -> str:
            return (await branch.sample(prompt, max_tokens=1_000)).text

        return await ctx.branch(inside, max_tokens=1_000)

    return advise


def reply(text: str, tokens: int) -> dict[str, Any]:
    return {"content": text, "usage": {"input_tokens": 0, "output_tokens": tokens}}


def granted(asked: Asked) -> int:
    """Return the maximum length of the reply to the one request."""
    [question] = asked.questions
    assert isinstance(question.request, SampleRequest)
    return question.request.max_tokens


async def begun(rounds: Rounds, prompt: str) -> Asked:
    first = await rounds.run(advising(prompt))
    assert isinstance(first, Asked)
    return first


async def continued(rounds: Rounds, prompt: str, asked: Asked, answer: Any = None) -> Any:
    answers = {} if answer is None else {asked.questions[0].id: answer}
    return await rounds.run(advising(prompt), state=asked.state, answers=answers)


async def test_a_changed_request_reserves_the_rest_of_its_own_prompt(rounds: Rounds) -> None:
    first = await begun(rounds, LONG)
    second = await continued(rounds, "Short?", first)
    assert second.questions[0].id == SAMPLE
    assert granted(second) > granted(first)
    assert await continued(rounds, "Short?", second, reply("yes", 9)) == Returned("yes")


async def test_a_refused_reply_is_charged(rounds: Rounds) -> None:
    first = await begun(rounds, "Old?")
    second = await continued(rounds, "New?", first, reply("to the old", 600))
    assert second.questions[0].id == f"{SAMPLE}~2"
    assert granted(second) < 400
    assert await continued(rounds, "New?", second, reply("to the new", 9)) == Returned("to the new")


async def test_an_error_for_a_changed_request_costs_nothing(rounds: Rounds) -> None:
    first = await begun(rounds, "Old?")
    second = await continued(rounds, "New?", first, AnswerError("no model"))
    assert granted(second) == granted(first)


async def test_a_question_may_become_one_of_another_kind(rounds: Rounds) -> None:
    """Both questions have one key: a user's answer must not count as a model's reply."""

    @tool(name="ask", elicits=[Elicitation("n", Number)])
    async def old(ctx: BranchContext) -> str:
        return (await ctx.elicit("n", "How many?", key="number")).action

    @tool(name="ask")
    async def new(ctx: BranchContext) -> str:
        return (await ctx.sample("How many?", key="number")).text

    first = await rounds.run(old)
    assert isinstance(first, Asked)
    given = {"number": {"action": "accept", "content": {"n": 1}}}
    second = await rounds.run(new, state=first.state, answers=given)
    assert isinstance(second, Asked)
    assert [each.id for each in second.questions] == ["number~2"]
    last = await rounds.run(new, state=second.state, answers={"number~2": {"content": "two"}})
    assert last == Returned("two")
