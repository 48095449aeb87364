"""2026-07-28: what is asked, what is taken as an answer, and what is asked again.

Source: SEP-2322; docs/limits-and-errors.md, "Bad answers".
"""

import json
from typing import Any

import pytest
from mcp import InputRequiredRoundsExceededError, MCPError
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


JO: dict[str, Any] = {"action": "accept", "content": {"user_name": "Jo"}}
THIRTY: dict[str, Any] = {"action": "accept", "content": {"years": 30}}
GREETING: dict[str, Any] = {
    "role": "assistant",
    "content": {"type": "text", "text": "Hi"},
    "model": "m",
}
AGE = "register/elicit.1"
GREET = "register/sample.1"
ANSWERS = Answers(lambda _: None, lambda _: None)


async def test_open_questions_come_together_under_their_keys_or_step_ids() -> None:
    async with connected(serving(register), MODERN, ANSWERS) as client:
        reply = await call_once(client, "register")
    assert reply["resultType"] == "input_required"
    assert list(reply["inputRequests"]) == ["user_name", AGE]
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


@pytest.mark.parametrize(
    "responses",
    [
        pytest.param({}, id="none"),
        pytest.param({"user_name": JO}, id="one of two"),
        pytest.param({"user_name": JO, "elsewhere": THIRTY}, id="never asked"),
        pytest.param({"user_name": JO, GREET: GREETING}, id="not asked yet"),
        pytest.param({"user_name": JO, AGE: GREETING}, id="of another kind"),
        pytest.param({"user_name": JO, AGE: {"roots": []}}, id="roots"),
    ],
)
async def test_a_question_without_its_answer_is_asked_again_as_it_was(
    responses: dict[str, Any],
) -> None:
    async with connected(serving(register), MODERN, ANSWERS) as client:
        first = await call_once(client, "register")
        again = await call_once(
            client, "register", state=first["requestState"], responses=responses
        )
    open_ones = {"user_name", AGE} - ({"user_name"} if "user_name" in responses else set())
    assert set(again["inputRequests"]) == open_ones
    for step_id in open_ones:
        assert again["inputRequests"][step_id] == first["inputRequests"][step_id]


async def test_answers_without_a_state_answer_nothing() -> None:
    async with connected(serving(register), MODERN, ANSWERS) as client:
        first = await call_once(client, "register")
        again = await call_once(client, "register", responses={"user_name": JO, AGE: THIRTY})
    assert again["inputRequests"] == first["inputRequests"]


async def test_a_malformed_answer_is_refused_by_the_protocol_and_costs_nothing() -> None:
    async with connected(serving(register), MODERN, ANSWERS) as client:
        first = await call_once(client, "register")
        nested = {"action": "accept", "content": {"years": {"n": 30}}}
        with pytest.raises(MCPError) as refused:
            await call_once(
                client, "register", state=first["requestState"], responses={AGE: nested}
            )
        assert refused.value.error.code == -32602
        again = await call_once(
            client, "register", state=first["requestState"], responses={AGE: THIRTY}
        )
    assert list(again["inputRequests"]) == ["user_name"]


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
