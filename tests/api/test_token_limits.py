"""Token budgets refuse requests before they spend, and charge every enclosing budget."""

from collections.abc import Callable

import pytest
from pydantic import BaseModel

from anabranch import AnswerError, BranchContext, Limits, ToolSpec, Usage, tool, user
from anabranch._asking import estimate_tokens
from anabranch.errors import BranchTimeoutError, BranchTokenError, SampleValidationError, StepFailed
from anabranch.messages import SampleReply, SampleRequest, TextBlock
from anabranch.testing import ManualClock, MockClient, run_tool


def costing(tokens: int, text: str = "ok") -> Callable[[SampleRequest], SampleReply]:
    """Return a model whose provider reports this usage for each reply."""
    usage = Usage(input_tokens=1, output_tokens=tokens - 1)
    return lambda _: SampleReply(content=(TextBlock(text=text),), usage=usage)


async def test_a_prompt_over_the_budget_is_never_sent(replay: bool) -> None:
    @tool(limits=Limits(max_tokens=100))
    async def ask(ctx: BranchContext) -> None:
        await ctx.sample("word " * 200)

    client = MockClient(samples=["never"])
    with pytest.raises(BranchTokenError) as raised:
        await run_tool(ask, {}, client, replay=replay)
    assert (raised.value.path, raised.value.budget) == ("ask", 100)
    assert raised.value.used > 200
    assert client.sample_calls == []


async def test_history_system_prompt_and_tools_count_in_the_estimate() -> None:
    long = "word " * 200
    spec = ToolSpec(name="t", description=long, input_schema={})

    @tool(limits=Limits(max_tokens=150))
    async def ask(ctx: BranchContext) -> int:
        for operation in (
            ctx.sample("a", system_prompt=long),
            ctx.sample(messages=[user(long), user("a")]),
            ctx.sample("a", tools=[spec]),
        ):
            with pytest.raises(BranchTokenError):
                await operation
        return len((await ctx.sample("a")).text)

    client = MockClient(samples=["ok"])
    assert await run_tool(ask, {}, client) == 2
    assert len(client.sample_calls) == 1


async def test_the_providers_count_is_charged(replay: bool) -> None:
    @tool(limits=Limits(max_tokens=100))
    async def ask(ctx: BranchContext) -> str:
        await ctx.sample(messages=[user("a")])
        with pytest.raises(BranchTokenError) as raised:
            await ctx.sample(messages=[user("b")])
        return f"{raised.value.used} of {raised.value.budget}"

    client = MockClient(samples=costing(99))
    assert await run_tool(ask, {}, client, replay=replay) == "102 of 100"
    assert len(client.sample_calls) == 1


async def test_without_a_count_prompt_and_reply_are_estimated(replay: bool) -> None:
    reply = "many words " * 30
    spent = estimate_tokens("hello there") + estimate_tokens(reply)

    @tool(limits=Limits(max_tokens=spent))
    async def exact(ctx: BranchContext) -> int:
        return len((await ctx.sample("hello there")).text)

    assert await run_tool(exact, {}, MockClient(samples=[reply]), replay=replay) == len(reply)
    with pytest.raises(BranchTokenError) as raised:
        await run_tool(
            exact,
            {},
            MockClient(samples=[reply]),
            replay=replay,
            limits=Limits(max_tokens=spent - 1),
        )
    assert raised.value.used == spent


async def test_a_reply_that_breaks_the_budget_is_an_error_and_stays_charged(replay: bool) -> None:
    @tool(limits=Limits(max_tokens=100))
    async def ask(ctx: BranchContext) -> list[int]:
        with pytest.raises(BranchTokenError) as after:
            await ctx.sample("a")
        with pytest.raises(BranchTokenError) as before:
            await ctx.sample("b")
        await ctx.elicit_url("go on", "https://example.org")
        return [after.value.used, before.value.used]

    client = MockClient(samples=costing(150), elicits=[{}])
    assert await run_tool(ask, {}, client, replay=replay) == [150, 153]
    assert len(client.sample_calls) == 1


async def test_a_request_asks_for_no_more_than_the_remaining_budget(replay: bool) -> None:
    async def inner(sub: BranchContext) -> None:
        await sub.sample("a")
        await sub.sample("b", max_tokens=10)

    @tool(limits=Limits(max_tokens=2000))
    async def outer(ctx: BranchContext) -> None:
        await ctx.sample("a", max_tokens=500)
        await ctx.branch(inner, max_tokens=100, inherit_messages=False)

    client = MockClient(samples=costing(30))
    await run_tool(outer, {}, client, replay=replay)
    first, second, third = client.sample_calls
    assert first.max_tokens == 500
    assert 90 < second.max_tokens < 100
    assert third.max_tokens == 10


class Answer(BaseModel):
    n: int


async def test_every_attempt_of_a_structured_sample_is_charged(replay: bool) -> None:
    @tool
    async def ask(ctx: BranchContext) -> str:
        with pytest.raises(SampleValidationError):
            await ctx.sample("n?", schema=Answer)
        with pytest.raises(BranchTokenError) as raised:
            await ctx.sample("word " * 2000)
        return str(raised.value.used - raised.value.used % 1000)

    client = MockClient(samples=costing(1000, "not json"))
    limits = Limits(max_tokens=4000)
    assert await run_tool(ask, {}, client, replay=replay, limits=limits) == "5000"
    assert len(client.sample_calls) == 3


async def test_a_retry_over_the_budget_is_not_made(replay: bool) -> None:
    spec = ToolSpec(name="t", input_schema={})

    @tool(limits=Limits(max_tokens=100))
    async def ask(ctx: BranchContext) -> None:
        await ctx.sample("a", tools=[spec], tool_choice="required")

    client = MockClient(samples=costing(90))
    with pytest.raises(BranchTokenError):
        await run_tool(ask, {}, client, replay=replay)
    assert len(client.sample_calls) == 1


async def cautious(ctx: BranchContext, prompt: str = "a", max_tokens: int | None = None) -> str:
    """Sample, and return the text of a refusal."""
    try:
        return (await ctx.sample(messages=[user(prompt)], max_tokens=max_tokens)).text
    except BranchTokenError as refused:
        return f"{refused.path}: {refused.used} of {refused.budget}"


async def test_a_sample_without_a_reply_gives_its_reservation_back(replay: bool) -> None:
    clock = ManualClock()

    async def slow(sub: BranchContext) -> None:
        await sub.sample("slow")

    async def waits(sub: BranchContext) -> None:
        await sub.elicit_url("wait", "https://example.org")

    @tool(limits=Limits(max_tokens=100))
    async def outer(ctx: BranchContext) -> str:
        with pytest.raises(StepFailed):
            await ctx.sample("fail")
        await ctx.race(ctx.branch(waits), ctx.branch(slow))
        with pytest.raises(BranchTimeoutError):
            await ctx.branch(slow, timeout=5)
        return await cautious(ctx)

    async def answer(request: SampleRequest) -> str:
        if request.messages[-1].text == "fail":
            raise AnswerError("no")
        if request.messages[-1].text == "slow" and client.elicit_calls:
            clock.advance(10)
        return "ok"

    client = MockClient(samples=answer, elicits=[{}])
    assert await run_tool(outer, {}, client, replay=replay, clock=clock) == "ok"
    assert client.sample_calls[-1].max_tokens > 90  # the budget is charged for the answered part


async def test_a_servers_own_model_is_charged_too(replay: bool) -> None:
    class Own:
        async def sample(self, request: SampleRequest) -> SampleReply:
            return costing(60)(request)

    @tool(limits=Limits(max_tokens=100))
    async def ask(ctx: BranchContext) -> str:
        await ctx.sample("a")
        await ctx.elicit_url("go on", "https://example.org")
        with pytest.raises(BranchTokenError) as raised:
            await ctx.sample("b")
        return str(raised.value.used)

    client = MockClient(elicits=[{}])
    assert await run_tool(ask, {}, client, sampler=Own(), replay=replay) == "120"
