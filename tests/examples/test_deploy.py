"""The example that asks by named questions, and deploys once."""

import mcp_types as types
import pytest

from anabranch import Cancelled, ToolError
from anabranch.messages import ElicitRequest
from anabranch.testing import MockClient, run_tool
from examples.deploy import deploy
from tests.mcp.harness import ERAS, MODERN, Answers, accept, connected, say, serving, text_of

DONE = "Version v2 runs on production."


async def test_a_version_is_deployed_when_user_and_model_agree() -> None:
    client = MockClient(samples=["Yes, all systems are green."], elicits=[{"target": "production"}])
    assert await run_tool(deploy, {"version": "v2"}, client) == DONE
    (question,), (request,) = client.elicit_calls, client.sample_calls
    assert isinstance(question, ElicitRequest)
    assert question.message == "Where to?"
    assert question.requested_schema == {
        "type": "object",
        "properties": {"target": {"type": "string"}},
        "required": ["target"],
    }
    assert request.messages[-1].text == "Is deploying to 'production' safe right now?"
    assert request.max_tokens == 100


async def test_a_modern_client_meets_each_question_under_its_key() -> None:
    params = {"version": "v2"}
    target = accept(target="production")
    able = Answers(lambda _: target, lambda _: say(""))
    async with connected(serving(deploy), MODERN, able) as client:
        call = client.session.call_tool
        asked = await call("deploy", params, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        assert list(asked.input_requests or {}) == ["target"]
        again = await call(
            "deploy",
            params,
            request_state=asked.request_state,
            input_responses={"target": target},
            allow_input_required=True,
        )
    assert isinstance(again, types.InputRequiredResult)
    assert list(again.input_requests or {}) == ["safety"]


@pytest.mark.parametrize("era", ERAS)
async def test_it_runs_over_either_era_of_mcp(era: str) -> None:
    answers = Answers(lambda _: accept(target="production"), lambda _: say("Yes."))
    async with connected(serving(deploy), era, answers) as client:
        result = await client.call_tool("deploy", {"version": "v2"})
    assert text_of(result) == DONE


async def test_nothing_is_deployed_when_the_user_cancels() -> None:
    client = MockClient(elicits=[Cancelled()])
    assert await run_tool(deploy, {"version": "v2"}, client) == "Not deployed."


async def test_nothing_is_deployed_when_the_model_refuses() -> None:
    client = MockClient(samples=["No: an incident is open."], elicits=[{"target": "production"}])
    with pytest.raises(ToolError, match="an incident is open"):
        await run_tool(deploy, {"version": "v2"}, client)
