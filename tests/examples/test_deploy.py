"""The tool that asks by named steps, with the questions and answers of the saga proposal."""

import mcp_types as types
import pytest

from anabranch import Cancelled, ToolError
from anabranch.messages import ElicitRequest
from anabranch.testing import MockClient, run_tool
from examples.deploy import complex_tool
from tests.examples.harness import ERAS, connected, text_of

DONE = "Deployment to production initiated successfully based on confirmation."


async def test_it_asks_what_the_seed_asks_and_returns_what_the_seed_returns() -> None:
    client = MockClient(samples=["Yes, all systems are green."], elicits=[{"target": "production"}])
    assert await run_tool(complex_tool, {"initial_arg": "value"}, client) == DONE
    (question,), (request,) = client.elicit_calls, client.sample_calls
    assert isinstance(question, ElicitRequest)
    assert question.message == "Please provide the deployment target:"
    assert question.requested_schema == {
        "type": "object",
        "properties": {"target": {"type": "string"}},
        "required": ["target"],
    }
    assert request.messages[-1].text == "Is deploying to 'production' safe right now?"
    assert request.max_tokens == 100


async def test_a_modern_client_meets_each_question_under_its_key() -> None:
    params = {"initial_arg": "value"}
    target = types.ElicitResult(action="accept", content={"target": "production"})
    async with connected(complex_tool, "2026-07-28", lambda _: None, lambda _: "") as client:
        call = client.session.call_tool
        asked = await call("complex_tool", params, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        assert list(asked.input_requests or {}) == ["step-elicitation-A"]
        again = await call(
            "complex_tool",
            params,
            request_state=asked.request_state,
            input_responses={"step-elicitation-A": target},
            allow_input_required=True,
        )
    assert isinstance(again, types.InputRequiredResult)
    assert list(again.input_requests or {}) == ["step-sampling-B"]


@pytest.mark.parametrize("era", ERAS)
async def test_it_runs_over_either_era_of_mcp(era: str) -> None:
    def person(_: str) -> dict[str, str]:
        return {"target": "production"}

    async with connected(complex_tool, era, person, lambda _: "Yes.") as client:
        result = await client.call_tool("complex_tool", {"initial_arg": "value"})
    assert text_of(result) == DONE


async def test_a_person_who_turns_away_deploys_nothing() -> None:
    client = MockClient(elicits=[Cancelled()])
    assert await run_tool(complex_tool, {"initial_arg": "v"}, client) == "Deployment cancelled."


async def test_a_model_that_says_no_deploys_nothing() -> None:
    client = MockClient(samples=["No: an incident is open."], elicits=[{"target": "production"}])
    with pytest.raises(ToolError, match="an incident is open"):
        await run_tool(complex_tool, {"initial_arg": "v"}, client)
