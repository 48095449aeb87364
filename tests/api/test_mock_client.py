"""``MockClient`` answers from lists or functions, records requests, and fails when it has no
answer.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import Accepted, AnswerError, BranchContext, Cancelled, Capabilities, Declined, tool
from anabranch.errors import CapabilityError, StepFailed
from anabranch.messages import (
    ElicitReply,
    ElicitRequest,
    SampleReply,
    SampleRequest,
    TextBlock,
    UrlRequest,
)
from anabranch.testing import MockClient, MockExhausted, run_tool


class Yes(BaseModel):
    yes: bool


@tool
async def ask(ctx: BranchContext, samples: int = 0, elicits: int = 0) -> list[str]:
    answers: list[str] = []
    for number in range(samples):
        result = await ctx.sample(f"s{number}")
        answers.append(result.text)
    for number in range(elicits):
        answer = await ctx.elicit(Yes, f"e{number}")
        answers.append(str(answer.content.yes) if isinstance(answer, Accepted) else answer.action)
    return answers


def shout(request: SampleRequest) -> str:
    return request.messages[-1].text.upper()


async def shout_later(request: SampleRequest) -> str:
    await asyncio.sleep(0)
    return request.messages[-1].text.upper()


async def test_samples_are_a_queue_of_texts_replies_results_and_functions(replay: bool) -> None:
    client = MockClient(
        samples=[
            "text",
            SampleReply(content=(TextBlock(text="reply"),)),
            {"content": "json", "model": "m"},
            shout,
            shout_later,
            Yes(yes=True),
        ]
    )
    said = await run_tool(ask, {"samples": 6}, client, replay=replay)
    assert said == ["text", "reply", "json", "S3", "S4", '{"yes":true}']


@pytest.mark.parametrize("function", [shout, shout_later])
async def test_a_function_answers_every_request(function: Callable[..., str], replay: bool) -> None:
    client = MockClient(samples=function)
    assert await run_tool(ask, {"samples": 3}, client, replay=replay) == ["S0", "S1", "S2"]


async def test_elicits_are_a_queue_of_contents_outcomes_and_functions(replay: bool) -> None:
    def yes(request: ElicitRequest) -> Yes:
        return Yes(yes=request.message == "e5")

    async def later(request: ElicitRequest | UrlRequest) -> dict[str, Any]:
        return {"yes": request.message == "e6"}

    client = MockClient(
        elicits=[
            {"yes": True},
            Yes(yes=False),
            Accepted(Yes(yes=True)),
            Declined(),
            Cancelled(),
            yes,
            later,
            ElicitReply(action="decline"),
        ]
    )
    said = await run_tool(ask, {"elicits": 8}, client, replay=replay)
    assert said == ["True", "False", "True", "decline", "cancel", "True", "True", "decline"]


@pytest.mark.parametrize(
    ("queue", "params"), [("samples", {"samples": 2}), ("elicits", {"elicits": 2})]
)
async def test_a_queue_that_runs_dry_is_named_with_the_question(
    queue: str, params: dict[str, int], replay: bool
) -> None:
    client = MockClient(samples=["x"], elicits=[{"yes": True}])
    with pytest.raises(MockExhausted) as raised:
        await run_tool(ask, params, client, replay=replay)
    assert f"MockClient({queue}=…) has only 1 answers" in str(raised.value)
    assert f"{queue[0]}1" in str(raised.value)


async def test_a_dry_queue_raises_an_error_that_no_tool_can_catch(replay: bool) -> None:
    """A tool that handles errors must not hide a mistake of the test."""

    @tool
    async def careless(ctx: BranchContext) -> str:
        try:
            return (await ctx.sample("x")).text
        except Exception:  # noqa: BLE001 - careless, as some tools are
            return "whatever"

    with pytest.raises(MockExhausted):
        await run_tool(careless, {}, MockClient(), replay=replay)


async def test_an_assertion_in_a_function_fails_the_test_and_not_the_tool(replay: bool) -> None:
    """An assertion about a request belongs to the test, and the tool must not catch it."""

    def checked(request: SampleRequest) -> str:
        assert request.max_tokens == 1, "asks for too much"
        return "x"

    @tool
    async def careless(ctx: BranchContext) -> str:
        try:
            return (await ctx.sample("x")).text
        except Exception:  # noqa: BLE001 - careless, as some tools are
            return "whatever"

    with pytest.raises(AssertionError, match="asks for too much"):
        await run_tool(careless, {}, MockClient(samples=checked), replay=replay)


def overloaded(_: SampleRequest) -> str:
    raise ConnectionError("overloaded")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ConnectionError("overloaded"), "ConnectionError"),
        (AnswerError("overloaded", 529), "529"),
        (overloaded, "ConnectionError"),
    ],
    ids=["exception", "answer error", "function"],
)
async def test_an_exception_among_the_answers_reaches_the_tool_as_a_failed_step(
    answer: Exception | Callable[[SampleRequest], str], code: str, replay: bool
) -> None:
    with pytest.raises(StepFailed) as raised:
        await run_tool(ask, {"samples": 1}, MockClient(samples=[answer]), replay=replay)
    assert (raised.value.error, raised.value.detail) == (code, "overloaded")


async def test_it_records_requests_and_notices_in_order_and_forgets_on_reset(replay: bool) -> None:
    @tool
    async def outer(ctx: BranchContext) -> None:
        await ctx.log("warning", "careful")
        await ctx.notify("half", 1, 2)
        await ctx.sample("s")
        await ctx.elicit(Yes, "e")
        await ctx.elicit_url("u", "https://example.org")

    client = MockClient(samples=["x"] * 2, elicits=[{"yes": True}, {}] * 2)
    for _ in range(2):
        await run_tool(outer, {}, client, replay=replay)
        assert [request.messages[0].text for request in client.sample_calls] == ["s"]
        assert [request.message for request in client.elicit_calls] == ["e", "u"]
        assert client.log_calls == [("warning", "careful")]
        assert client.notify_calls == [("half", 1, 2)]
        client.reset()
        assert [client.sample_calls, client.elicit_calls] == [[], []]
        assert [client.log_calls, client.notify_calls] == [[], []]
    with pytest.raises(MockExhausted):
        await run_tool(outer, {}, client, replay=replay)


@pytest.mark.parametrize(
    ("capabilities", "params", "missing"),
    [
        ({"elicitation"}, {"samples": 1}, "sampling"),
        ({"sampling"}, {"elicits": 1}, "elicitation"),
        (set[str](), {"samples": 1}, "sampling"),
        (Capabilities(elicitation=False), {"elicits": 1}, "elicitation"),
    ],
    ids=["no sampling", "no elicitation", "nothing", "as Capabilities"],
)
async def test_a_capability_that_is_left_out_is_refused_at_the_call(
    capabilities: Capabilities | Iterable[str], params: dict[str, int], missing: str, replay: bool
) -> None:
    client = MockClient(samples=["x"], elicits=[{"yes": True}], capabilities=capabilities)
    with pytest.raises(CapabilityError) as raised:
        await run_tool(ask, params, client, replay=replay)
    assert raised.value.capability == missing
    assert [client.sample_calls, client.elicit_calls] == [[], []]


def test_a_capability_stands_for_its_finer_ones() -> None:
    everything = Capabilities(sampling_context=True)
    assert MockClient().capabilities == everything
    assert MockClient(capabilities={"sampling", "elicitation"}).capabilities == everything
    some = MockClient(capabilities={"sampling"}).capabilities
    assert some.names() == {"sampling", "sampling.tools", "sampling.context"}
    with pytest.raises(ValueError, match=r"\['smapling'\]; known are"):
        MockClient(capabilities={"smapling"})


@pytest.mark.parametrize("single", ["a text", {"yes": True}, Yes(yes=True)], ids=repr)
def test_a_single_answer_that_is_no_list_is_refused(single: Any) -> None:
    """A text is iterable: without the check each letter would be one answer."""
    with pytest.raises(TypeError, match="takes a list of answers"):
        MockClient(samples=single)
    with pytest.raises(TypeError, match="takes a list of answers"):
        MockClient(elicits=single)


async def test_a_value_that_is_no_answer_is_refused(replay: bool) -> None:
    """A mistake of the test must fail the test, even if the tool catches errors."""
    nonsense: Any = 17
    with pytest.raises(TypeError, match="cannot make a model's reply of 17"):
        await run_tool(ask, {"samples": 1}, MockClient(samples=[nonsense]), replay=replay)
    with pytest.raises(TypeError, match="cannot make a user's answer of 17"):
        await run_tool(ask, {"elicits": 1}, MockClient(elicits=[nonsense]), replay=replay)


@pytest.mark.parametrize(
    ("literal", "action"),
    [
        ({"action": "accept", "content": {"yes": True}}, "True"),
        ({"action": "decline"}, "decline"),
        ({"action": "cancel"}, "cancel"),
        ({"action": "decline", "content": None}, "decline"),
    ],
)
async def test_the_literal_answers_of_the_protocol_are_answers(
    literal: dict[str, Any], action: str, replay: bool
) -> None:
    def always(request: ElicitRequest | UrlRequest) -> dict[str, Any]:
        return literal

    for client in (MockClient(elicits=[literal]), MockClient(elicits=always)):
        assert await run_tool(ask, {"elicits": 1}, client, replay=replay) == [action]


class Choice(BaseModel):
    action: str
    content: str = ""


@tool
async def choose(ctx: BranchContext) -> str:
    answer = await ctx.elicit(Choice, "What?")
    return answer.content.action if isinstance(answer, Accepted) else answer.action


@pytest.mark.parametrize("content", [{"action": "accept"}, {"action": "go", "content": "now"}])
async def test_content_that_resembles_such_an_answer_is_content(content: dict[str, Any]) -> None:
    """A form may have a field named ``action``."""
    assert await run_tool(choose, {}, MockClient(elicits=[content])) == content["action"]
