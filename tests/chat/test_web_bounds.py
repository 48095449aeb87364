"""Bounds on requests: numbers that JSON has, ids that URLs can have, and a token on a public address."""

import json
from itertools import product
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Elicitation, tool
from anabranch.cli import main
from tests.chat.web import browsing, message, resume, run

JSON = {"content-type": "application/json"}
PLACE = 7.25
"""Stands in a body where a text is put that ``json`` does not write."""


class Amount(BaseModel):
    amount: float


AMOUNT = Elicitation("amount", Amount)


@tool(elicits=[AMOUNT])
async def pay(ctx: BranchContext) -> str:
    answer = await ctx.elicit(AMOUNT, "How much?")
    return str(answer.content.amount) if isinstance(answer, Accepted) else answer.action


@tool
async def visit(ctx: BranchContext) -> str:
    """Send the user to an address."""
    return (await ctx.elicit_url("Please.", "https://pay.example/1")).action


def written(body: dict[str, Any], number: str) -> str:
    return json.dumps(body).replace(str(PLACE), number)


async def test_a_body_that_is_no_object_is_named_as_the_body() -> None:
    async with browsing() as client:
        refused = await client.post("/threads", json=[])
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("The request does not fit: body: ")


@pytest.mark.parametrize(
    ("said", "content"),
    [
        pytest.param("/pay", {"amount": PLACE}, id="field"),
        pytest.param("/pay", {"amount": 1, "more": {"deep": [PLACE]}}, id="within"),
        pytest.param("/visit", {"more": PLACE}, id="visit"),
    ],
)
async def test_a_number_that_json_lacks_is_refused(said: str, content: dict[str, Any]) -> None:
    async with browsing(tools=[pay, visit]) as client:
        await run(client, message(said))
        [question] = (await client.get("/threads/t1/pending")).json()
        name = question["interrupt_id"]
        answer = {"interrupt_id": name, "action": "accept", "content": content}
        entry = {"interruptId": name, "status": "resolved", "payload": content}
        places = (("/threads/t1/answers", answer), ("/agui", resume(entry)))
        for (path, body), number in product(places, ["NaN", "Infinity", "-Infinity", "1e999"]):
            response = await client.post(path, content=written(body, number), headers=JSON)
            assert (response.status_code, response.json()["reason"]) == (422, "invalid")
            assert "NaN and Infinity" in response.json()["errors"][0]["message"]
        assert (await client.get("/threads/t1/pending")).json() == [question]


@pytest.mark.parametrize(
    ("ids", "named"),
    [
        pytest.param({"thread": "../../x"}, "threadId", id="path"),
        pytest.param({"thread": "a b"}, "threadId", id="space"),
        pytest.param({"thread": "x" * 201}, "threadId", id="long thread"),
        pytest.param({"run": "x" * 201}, "runId", id="long run"),
        pytest.param({"run": "\0"}, "runId", id="run of no character"),
        pytest.param({"run": "r\x9b"}, "runId", id="run with a control character"),
    ],
)
async def test_an_id_that_no_address_can_have_is_refused(ids: dict[str, str], named: str) -> None:
    async with browsing() as client:
        response = await client.post("/agui", json=message("hello", **ids))
        assert (response.status_code, named in response.json()["error"]) == (422, True)
        assert (await client.get("/threads")).json() == []


def test_a_public_address_requires_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["web", "--host", "0.0.0.0", "--port", "0"]) == 2  # noqa: S104 - nothing is bound
    assert "Set a token" in capsys.readouterr().err
