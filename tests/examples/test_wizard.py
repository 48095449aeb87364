"""The short tool that most pages of the documentation use."""

from pathlib import Path

import pytest

import examples.wizard
from anabranch import Declined
from anabranch.testing import MockClient, run_tool
from examples.wizard import plan_trip
from tests.mcp.harness import ERAS, Answers, accept, connected, echo, serving, text_of


async def test_the_wizard_asks_the_user_and_then_the_model() -> None:
    client = MockClient(samples=["Walk the Ring."], elicits=[{"city": "Vienna"}])
    assert await run_tool(plan_trip, {"days": 2}, client) == "VIE-2: Walk the Ring."
    assert client.elicit_calls[0].message == "Where do you want to spend 2 days?"
    assert client.sample_calls[0].messages[-1].text == "Plan 2 days in Vienna, in one sentence."


@pytest.mark.parametrize("era", ERAS)
async def test_it_runs_over_either_era_of_mcp(era: str) -> None:
    answers = Answers(lambda _: accept(city="Vienna"), echo)
    async with connected(serving(plan_trip), era, answers) as client:
        result = await client.call_tool("plan_trip", {"days": 2})
    assert text_of(result) == "VIE-2: <Plan 2 days in Vienna, in one sentence.>"


async def test_a_refusal_ends_the_wizard_without_a_ticket() -> None:
    assert await run_tool(plan_trip, {}, MockClient(elicits=[Declined()])) == "No trip."


def test_it_is_fifteen_lines_long() -> None:
    text = Path(examples.wizard.__file__).read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) == 15
