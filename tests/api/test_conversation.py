"""The conversation of a branch: messages sent to the model, messages appended, and who sees them."""

import asyncio

import pytest
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Message, SampleResult, assistant, tool, user
from anabranch.messages import MessageLike, SampleRequest
from anabranch.testing import MockClient, run_tool


class Row(BaseModel):
    row: int


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


def echo(request: SampleRequest) -> str:
    return f"re: {request.messages[-1].text}"


async def test_a_prompt_and_its_reply_precede_the_next_prompt(replay: bool) -> None:
    @tool
    async def talk(ctx: BranchContext) -> list[str]:
        assert not ctx.messages
        await ctx.sample("one")
        assert ctx.messages == (user("one"), assistant("re: one"))
        await ctx.sample("two")
        return texts(ctx.messages)

    client = MockClient(samples=echo)
    said = await run_tool(talk, {}, client, replay=replay)
    assert said == ["one", "re: one", "two", "re: two"]
    assert texts(client.sample_calls[1].messages) == ["one", "re: one", "two"]


async def test_explicit_messages_are_sent_unchanged_and_never_added(replay: bool) -> None:
    @tool
    async def talk(ctx: BranchContext) -> int:
        await ctx.sample("appended")
        given: list[MessageLike] = [user("q"), assistant("a"), {"role": "user", "content": "again"}]
        await ctx.sample(messages=given)
        return len(ctx.messages)

    client = MockClient(samples=echo)
    assert await run_tool(talk, {}, client, replay=replay) == 2
    assert texts(client.sample_calls[1].messages) == ["q", "a", "again"]


async def test_a_failed_sample_does_not_change_the_conversation(replay: bool) -> None:
    @tool
    async def talk(ctx: BranchContext) -> list[str]:
        await ctx.gather(attempt(ctx), ctx.step(str))
        await ctx.sample("second")
        return texts(ctx.messages)

    async def attempt(ctx: BranchContext) -> None:
        with pytest.raises(Exception, match="answered with RuntimeError"):
            await ctx.sample("first")

    client = MockClient(samples=[RuntimeError("down"), "up"])
    assert await run_tool(talk, {}, client, replay=replay) == ["second", "up"]


async def test_simultaneous_prompts_keep_program_order_in_the_conversation(replay: bool) -> None:
    """The order of answers differs by edge, so it must not decide the order of messages."""

    @tool
    async def talk(ctx: BranchContext) -> list[str]:
        await ctx.sample("zero")
        await ctx.gather(ctx.sample("one"), ctx.sample("two"), ctx.sample("three"))
        return texts(ctx.messages)[::2]

    later = {"one": 0.003, "two": 0.002}

    async def slow_first(request: SampleRequest) -> str:
        await asyncio.sleep(later.get(request.messages[-1].text, 0))
        return "x"

    client = MockClient(samples=slow_first)
    said = await run_tool(talk, {}, client, replay=replay)
    assert said == ["zero", "one", "two", "three"]
    assert all(len(request.messages) == 3 for request in client.sample_calls[1:])


async def test_an_operation_takes_its_place_when_it_is_created(replay: bool) -> None:
    """An operation takes its id and its place when its method is called, and not at the ``await``."""

    @tool
    async def talk(ctx: BranchContext) -> list[str]:
        first, second = ctx.sample("one"), ctx.sample("two")
        await second
        await first
        return texts(ctx.messages)

    said = await run_tool(talk, {}, MockClient(samples=echo), replay=replay)
    assert said == ["one", "re: one", "two", "re: two"]


async def test_a_task_continues_its_parents_conversation_without_changing_it(replay: bool) -> None:
    """Two tasks that sample at the same time cannot share one list of messages."""

    @tool
    async def talk(ctx: BranchContext) -> list[list[str]]:
        await ctx.sample("a")
        await ctx.sample("b")

        async def aside(prompt: str) -> list[str]:
            await ctx.sample(prompt)
            return texts(ctx.messages)[::2]

        async with asyncio.TaskGroup() as group:
            asides = [group.create_task(aside(prompt)) for prompt in ("x", "y")]
        await ctx.sample("c")
        return [*(task.result() for task in asides), texts(ctx.messages)[::2]]

    said = await run_tool(talk, {}, MockClient(samples=echo), replay=replay)
    assert said == [["a", "b", "x"], ["a", "b", "y"], ["a", "b", "c"]]


async def test_the_parent_conversation_is_a_snapshot(replay: bool) -> None:
    @tool
    async def talk(ctx: BranchContext) -> list[list[str]]:
        async def inner(sub: BranchContext) -> list[list[str]]:
            before = texts(sub.parent_messages)
            await ctx.sample("outside, meanwhile")
            await sub.sample("inside")
            return [before, texts(sub.parent_messages)]

        await ctx.sample("first")
        return await ctx.branch(inner)

    before, after = await run_tool(talk, {}, MockClient(samples=echo), replay=replay)
    assert before == after == ["first", "re: first"]


async def test_the_calling_conversation_is_read_only_and_not_sent_along() -> None:
    calling: list[Message] = [user("hello"), assistant("hi")]

    @tool
    async def talk(ctx: BranchContext) -> tuple[int, str | None]:
        await ctx.sample("now")
        return len(ctx.parent_messages), ctx.parent_system_prompt

    client = MockClient(samples=["ok"])
    seen = await run_tool(
        talk, {}, client, parent_messages=tuple(calling), parent_system_prompt="be kind"
    )
    assert seen == (2, "be kind")
    (request,) = client.sample_calls
    assert texts(request.messages) == ["now"]
    assert request.system_prompt is None


async def test_an_outer_context_used_inside_a_branch_does_not_grow(replay: bool) -> None:
    """A replay does not run a folded branch again, so a folded branch must leave no messages
    behind.
    """

    @tool
    async def talk(ctx: BranchContext) -> list[str]:
        async def inner(sub: BranchContext) -> list[str]:
            await ctx.sample("by the back door")
            return texts(ctx.messages)

        inside = await ctx.branch(inner)
        await ctx.sample("next")
        return [*inside, *texts(ctx.messages)]

    said = await run_tool(talk, {}, MockClient(samples=echo), replay=replay)
    assert said == ["by the back door", "re: by the back door", "next", "re: next"]


async def test_an_exchange_continues_an_explicit_conversation(replay: bool) -> None:
    @tool
    async def talk(ctx: BranchContext) -> SampleResult[None]:
        first = await ctx.sample(messages=[user("one")])
        answer = await ctx.elicit(Row, "Row?")
        assert isinstance(answer, Accepted)
        return await ctx.sample(messages=[*first.exchange, *answer.exchange, user("two")])

    client = MockClient(samples=echo, elicits=[{"row": 1}])
    result = await run_tool(talk, {}, client, replay=replay)
    assert texts(result.exchange) == ["two", "re: two"]
    assert texts(client.sample_calls[1].messages) == ["one", "re: one", "Row?", "", "two"]
