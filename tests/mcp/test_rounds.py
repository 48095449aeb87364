"""2026-07-28: what is asked, what is taken as an answer, and what is asked again.

Source: SEP-2322; docs/limits-and-errors.md, "Bad answers".
"""

import json

import pytest
from mcp import InputRequiredRoundsExceededError
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Elicitation, tool
from anabranch._engine import Journal
from anabranch.messages import SampleReply, SampleRequest
from tests.mcp.harness import (
    MODERN,
    Answers,
    accept,
    call_once,
    connected,
    plaintext,
    serving,
)


class Name(BaseModel):
    user_name: str


class Age(BaseModel):
    years: int


NAME = Elicitation("name", Name)


@tool(elicits=[NAME])
async def register(ctx: BranchContext) -> str:
    """Ask two things at once, then a third."""
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
    """Ask one question after the other."""
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


def secret() -> str:
    return "the vault code is 1234"


@tool
async def vault(ctx: BranchContext) -> str:
    """Know something, and ask."""
    code = await ctx.step(secret)
    answer = await ctx.elicit(Name, "Who are you?")
    await ctx.elicit(Name, "Are you sure?")
    return f"{code} {answer.action}"


async def test_secrets_of_the_server_are_never_compressed_with_text_of_the_client() -> None:
    """Else a client could learn it from the length of the state, by guessing (CRIME)."""
    async with connected(serving(vault), MODERN, ANSWERS) as client:
        first = await call_once(client, "vault")
        guess = {"action": "accept", "content": {"user_name": "the vault code is 9999"}}
        second = await call_once(
            client, "vault", state=first["requestState"], responses={"vault/elicit.1": guess}
        )
    text = plaintext(second["requestState"])
    assert "1234" in text  # as it is
    assert "9999" not in text  # deflated
    entries = Journal.loads(text).entries
    assert {step_id: entry.public for step_id, entry in entries.items()} == {
        "vault/secret.1": False,
        "vault/elicit.1": True,
    }


async def test_replies_of_the_servers_model_are_never_compressed_with_text_of_the_client() -> None:
    class Model:
        async def sample(self, request: SampleRequest) -> SampleReply:
            return SampleReply.model_validate({"content": "the vault code is 1234"})

    @tool
    async def ask(ctx: BranchContext) -> str:
        """Ask the server's model, then the person."""
        said = await ctx.sample("What is the code?")
        await ctx.elicit(Name, "Who are you?")
        return said.text

    async with connected(serving(ask, sampler=Model()), MODERN, ANSWERS) as client:
        reply = await call_once(client, "ask")
    text = plaintext(reply["requestState"])
    assert "1234" in text
    assert not Journal.loads(text).entries["ask/sample.1"].public


async def test_a_state_hides_its_content() -> None:
    async with connected(serving(vault), MODERN, ANSWERS) as client:
        reply = await call_once(client, "vault")
    assert "vault" not in json.dumps(reply["requestState"])
