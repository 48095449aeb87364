"""2026-07-28: the questions of a round, the accepted answers, and the repeated questions.

Source: SEP-2322; docs/limits-and-errors.md, "Bad answers".
"""

import json

import pytest
from mcp import InputRequiredRoundsExceededError
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Elicitation, tool
from tests.mcp.harness import MODERN, Answers, accept, call_once, connected, serving


class Name(BaseModel):
    user_name: str


class Age(BaseModel):
    years: int


NAME = Elicitation("name", Name)


@tool(elicits=[NAME])
async def register(ctx: BranchContext) -> str:
    """Ask two questions at the same time, then a third."""
    name, age = await ctx.gather(
        ctx.elicit(NAME, "Your name?", key="user_name"), ctx.elicit(Age, "Your age?")
    )
    greeting = await ctx.sample("Greet them")
    said = [answer.content if isinstance(answer, Accepted) else answer for answer in (name, age)]
    return f"{said[0]} {said[1]} {greeting.text}"


ANSWERS = Answers(lambda _: None, lambda _: None)


async def test_open_questions_come_together_under_their_keys_or_step_ids() -> None:
    async with connected(serving(register), MODERN, ANSWERS) as client:
        reply = await call_once(client, "register")
    assert reply["resultType"] == "input_required"
    assert list(reply["inputRequests"]) == ["user_name", "register/elicit.1"]
    assert reply["inputRequests"]["user_name"]["method"] == "elicitation/create"
    assert reply["inputRequests"]["user_name"]["params"] == {
        "mode": "form",
        "message": "Your name?",
        "requestedSchema": {
            "type": "object",
            "properties": {"user_name": {"type": "string"}},
            "required": ["user_name"],
        },
    }


@tool
async def interview(ctx: BranchContext, questions: int) -> int:
    """Ask questions in turn."""
    total = 0
    for number in range(questions):
        answer = await ctx.elicit(Age, f"Question {number}")
        total += answer.content.years if isinstance(answer, Accepted) else 0
    return total


async def test_more_rounds_than_ten_need_a_client_that_allows_them() -> None:
    answers = Answers(lambda _: accept(years=1))
    async with connected(serving(interview), MODERN, answers) as client:
        with pytest.raises(InputRequiredRoundsExceededError):
            await client.call_tool("interview", {"questions": 11})
    async with connected(
        serving(interview), MODERN, answers, input_required_max_rounds=40
    ) as client:
        result = await client.call_tool("interview", {"questions": 40})
    assert result.structured_content == {"result": 40}


async def test_a_state_hides_its_content() -> None:
    async with connected(serving(register), MODERN, ANSWERS) as client:
        reply = await call_once(client, "register")
    assert "register" not in json.dumps(reply["requestState"])
