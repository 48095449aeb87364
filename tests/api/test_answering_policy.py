"""``AnsweringPolicy``: the rules by which a client lets servers use its model."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch import AnsweringPolicy, BranchContext, Declined, run_tool, tool
from anabranch.errors import StepFailed, ToolError
from anabranch.messages import ElicitRequest, SampleRequest
from anabranch.testing import MockClient


@tool
async def ask(ctx: BranchContext, times: int = 1) -> list[str]:
    """Sample the model, and return its reply or the refusal."""
    said: list[str] = []
    for number in range(times):
        try:
            said.append((await ctx.sample(f"Question {number}", system_prompt="Be brief.")).text)
        except StepFailed as failed:
            said.append(failed.detail if failed.refused else str(failed))
    return said


def answering(client: MockClient, now: Callable[[], float] = lambda: 0.0, **options: Any) -> Any:
    return AnsweringPolicy(**options).applied_to(client, server="shop", now=now)


async def test_the_default_policy_answers_every_sample(replay: bool) -> None:
    client = MockClient(samples=["a", "b"])
    policed = answering(client)
    assert policed.capabilities == client.capabilities
    assert await run_tool(ask, {"times": 2}, policed, replay=replay) == ["a", "b"]
    assert client.elicit_calls == []


async def test_the_policy_asks_the_user_before_each_sample(replay: bool) -> None:
    client = MockClient(samples=["a"], elicits=[{}, Declined()])
    with (policed := answering(client, confirm_samples=True)).calling("ask"):
        said = await run_tool(ask, {"times": 2}, policed, replay=replay)
    assert said == ["a", "The user does not allow this sample."]
    assert len(client.sample_calls) == 1
    shown = client.elicit_calls[0]
    assert isinstance(shown, ElicitRequest)
    assert shown.requested_schema == {"type": "object", "properties": {}}
    for part in ("shop", "ask", "Be brief.", "Question 0", "1024"):
        assert part in shown.message


async def test_a_sample_is_refused_when_no_user_can_be_asked(replay: bool) -> None:
    client = MockClient(samples=["a"], capabilities={"sampling"})
    said = await run_tool(ask, {}, answering(client, confirm_samples=True), replay=replay)
    assert said == ["This client asks its user before each sample, and no user is here to ask."]
    assert client.sample_calls == []


async def test_a_long_request_is_shown_in_part() -> None:
    client = MockClient(samples=["a"], elicits=[{}])
    policed = answering(client, confirm_samples=True)
    request = SampleRequest.model_validate(
        {"messages": [{"role": "user", "content": "x" * 100_000}], "max_tokens": 9}
    )
    await policed.sample(request, step_id="s")
    assert len(client.elicit_calls[0].message) < 5_000
    assert "more characters" in client.elicit_calls[0].message


async def test_samples_are_refused_beyond_the_rate_per_minute() -> None:
    time = 100.0
    client = MockClient(samples=lambda _: "a")
    policed = answering(client, lambda: time, max_samples_per_minute=2)
    refused = "This client answers at most 2 samples a minute. Ask again later."
    assert await run_tool(ask, {"times": 3}, policed) == ["a", "a", refused]
    time += 59.9
    assert await run_tool(ask, {}, policed) == [refused]
    time += 0.1
    assert await run_tool(ask, {"times": 3}, policed) == ["a", "a", refused]
    assert len(client.sample_calls) == 4


async def test_a_sample_refused_by_the_rate_does_not_disturb_the_user() -> None:
    client = MockClient(samples=["a"], elicits=[Declined()])
    policed = answering(client, max_samples_per_minute=1, confirm_samples=True)
    await run_tool(ask, {"times": 3}, policed)
    assert (len(client.elicit_calls), client.sample_calls) == (1, [])


async def test_simultaneous_samples_count_before_they_are_answered() -> None:
    client = MockClient(samples=lambda _: "a")
    policed = answering(client, max_samples_per_minute=2)

    @tool
    async def many(ctx: BranchContext) -> int:
        return len(await ctx.gather(*(ctx.sample(str(number)) for number in range(3))))

    with pytest.raises(StepFailed, match="at most 2"):
        await run_tool(many, {}, policed)
    assert len(client.sample_calls) == 2


async def test_a_tool_or_a_server_can_be_excluded(replay: bool) -> None:
    client = MockClient(samples=["a"])
    policed = answering(client, never_for_tools=["ask"])
    with policed.calling("ask"):
        said = await run_tool(ask, {}, policed, replay=replay)
    assert said == ["This client answers no samples for the tool 'ask'."]
    with policed.calling("other"):
        assert await run_tool(ask, {}, policed, replay=replay) == ["a"]
    said = await run_tool(ask, {}, answering(client, never_for_servers={"shop"}), replay=replay)
    assert said == ["This client answers no samples for the server 'shop'."]
    assert len(client.sample_calls) == 1


async def test_while_an_excluded_tool_runs_no_tool_of_its_server_is_answered() -> None:
    """The policy refuses the whole server's samples: a request does not name its tool."""
    client = MockClient(samples=["a"])
    policed = answering(client, never_for_tools={"shady"})
    with policed.calling("ask"):
        with policed.calling("shady"), policed.calling("shady"):
            pass
        with policed.calling("shady"):
            assert "shady" in (await run_tool(ask, {}, policed))[0]
        assert await run_tool(ask, {}, policed) == ["a"]


async def test_questions_and_notices_pass() -> None:
    client = MockClient(elicits=[{}])

    @tool
    async def other(ctx: BranchContext) -> None:
        await ctx.elicit_url("Go there.", "https://x.example")
        await ctx.log("info", "hello")
        await ctx.notify("half", 1, 2)

    policed = answering(client, never_for_servers={"shop"}, max_samples_per_minute=1)
    await run_tool(other, {}, policed)
    assert (len(client.elicit_calls), len(client.log_calls), len(client.notify_calls)) == (1, 1, 1)


async def test_a_user_with_an_open_question_does_not_hold_up_others() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slowly(_: Any) -> dict[str, Any]:
        asked.set()
        await answer.wait()
        return {}

    client = MockClient(samples=lambda _: "a", elicits=[slowly, Declined()])
    policed = answering(client, confirm_samples=True)
    first = asyncio.create_task(run_tool(ask, {}, policed))
    await asked.wait()
    assert await run_tool(ask, {}, policed) == ["The user does not allow this sample."]
    answer.set()
    assert await first == ["a"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_samples_per_minute": 0}, "max_samples_per_minute must be a positive number"),
        ({"max_samples_per_minute": 1.5}, "max_samples_per_minute"),
        ({"max_samples_per_minute": True}, "max_samples_per_minute"),
        ({"never_for_tools": "shop"}, "never_for_tools takes several names"),
        ({"never_for_servers": [""]}, "never_for_servers"),
        ({"never_for_servers": [1]}, "never_for_servers"),
    ],
)
def test_an_impossible_policy_is_refused(options: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        AnsweringPolicy(**options)


def test_a_policy_is_a_value() -> None:
    left, right = AnsweringPolicy(never_for_tools=["a"]), AnsweringPolicy(never_for_tools={"a"})
    assert left == right
    assert hash(left) == hash(right)
    with pytest.raises(AttributeError):
        left.confirm_samples = True  # type: ignore[misc]


async def test_a_refusal_can_be_handled_as_a_tools_own() -> None:
    @tool
    async def strict(ctx: BranchContext) -> str:
        try:
            return (await ctx.sample("?")).text
        except StepFailed as failed:
            raise ToolError(f"No model: {failed.detail}") from failed

    policed = answering(MockClient(), never_for_servers=["shop"])
    with pytest.raises(ToolError, match="No model: This client answers no samples"):
        await run_tool(strict, {}, policed)
