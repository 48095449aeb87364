"""Branches inside a call: the messages that they inherit, the value that they return, and running
several.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable

import pytest

from anabranch import BranchContext, Message, assistant, tool, user
from anabranch._engine import current_call
from anabranch.messages import SampleRequest
from anabranch.testing import MockClient, run_tool


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


def echo(request: SampleRequest) -> str:
    return f"re: {request.messages[-1].text}"


async def test_a_branch_is_called_with_its_context_and_the_arguments_and_returns_one_value(
    replay: bool,
) -> None:
    async def inner(sub: BranchContext, a: int, b: str) -> str:
        reply = await sub.sample("inside")
        return f"{a}{b} {reply.text} at {sub.path} ({sub.depth})"

    @tool
    async def outer(ctx: BranchContext) -> list[str]:
        first = await ctx.branch(inner, 1, "x")
        second = await ctx.branch(inner, 2, "y")
        third = await ctx.branch(inner, 3, "z", name="other")
        return [first, second, third]

    assert await run_tool(outer, {}, MockClient(samples=echo), replay=replay) == [
        "1x re: inside at outer/inner#1 (1)",
        "2y re: inside at outer/inner#2 (1)",
        "3z re: inside at outer/other#1 (1)",
    ]


async def test_a_branch_inherits_conversation_and_system_prompt_by_default(replay: bool) -> None:
    async def inner(sub: BranchContext) -> list[str]:
        await sub.sample("deeper")
        return texts(sub.messages)

    async def middle(sub: BranchContext) -> list[str]:
        return await sub.branch(inner)

    @tool
    async def outer(ctx: BranchContext) -> list[str]:
        await ctx.sample("first")
        return await ctx.branch(middle, system_prompt="be brief")

    client = MockClient(samples=echo)
    said = await run_tool(outer, {}, client, replay=replay)
    assert said == ["first", "re: first", "deeper", "re: deeper"]
    assert [request.system_prompt for request in client.sample_calls] == [None, "be brief"]
    assert texts(client.sample_calls[1].messages) == ["first", "re: first", "deeper"]


async def test_a_branch_can_start_fresh(replay: bool) -> None:
    async def inner(sub: BranchContext) -> tuple[list[str], str | None]:
        assert sub.system_prompt is None
        await sub.sample("alone")
        return texts(sub.parent_messages), sub.parent_system_prompt

    async def middle(sub: BranchContext) -> tuple[list[str], str | None]:
        return await sub.branch(inner, inherit_messages=False, inherit_system_prompt=False)

    @tool
    async def outer(ctx: BranchContext) -> tuple[list[str], str | None]:
        await ctx.sample("first")
        return await ctx.branch(middle, system_prompt="be brief")

    client = MockClient(samples=echo)
    seen = await run_tool(outer, {}, client, replay=replay)
    assert seen == (["first", "re: first"], "be brief")
    assert texts(client.sample_calls[1].messages) == ["alone"]
    assert client.sample_calls[1].system_prompt is None


async def test_seeded_messages_follow_inherited_messages(replay: bool) -> None:
    async def inner(sub: BranchContext) -> None:
        await sub.sample("go", system_prompt="for this once")

    @tool
    async def outer(ctx: BranchContext) -> None:
        await ctx.sample("first")
        seeds = [user("seed"), assistant("plant")]
        await ctx.branch(inner, messages=seeds, system_prompt="for the branch")
        await ctx.branch(inner, messages=seeds, inherit_messages=False)

    client = MockClient(samples=echo)
    await run_tool(outer, {}, client, replay=replay)
    _, inheriting, fresh = client.sample_calls
    assert texts(inheriting.messages) == ["first", "re: first", "seed", "plant", "go"]
    assert texts(fresh.messages) == ["seed", "plant", "go"]
    assert inheriting.system_prompt == fresh.system_prompt == "for this once"


async def test_a_race_without_entrants_is_refused() -> None:
    """A race without entrants would never end."""

    @tool
    async def outer(ctx: BranchContext) -> bool:
        with pytest.raises(ValueError, match="at least one operation"):
            ctx.race()  # type: ignore[unused-coroutine]  # raises
        return await ctx.gather() == ()

    assert await run_tool(outer, {}, MockClient())


class Analyst:
    async def method(self, sub: BranchContext, n: int) -> int:
        return n + sub.depth

    async def __call__(self, sub: BranchContext, n: int) -> int:
        return n + sub.depth


FUNCTIONS: dict[str, Callable[[BranchContext, int], Awaitable[int]]] = {
    "method": Analyst().method,
    "branch": Analyst(),
    "branch of a partial": functools.partial(Analyst().method),
    "branch of a lambda": lambda sub, n: Analyst().method(sub, n),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
async def test_anything_that_can_be_called_can_be_a_branch(kind: str, replay: bool) -> None:
    @tool
    async def outer(ctx: BranchContext) -> int:
        value = await ctx.branch(FUNCTIONS[kind], 1)
        await ctx.sample("next")
        assert f"outer/{kind.partition(' ')[0]}#1" in current_call().journal.entries
        return value

    assert await run_tool(outer, {}, MockClient(samples=echo), replay=replay) == 2


async def test_cancelling_the_call_stops_the_body_and_runs_its_undos(replay: bool) -> None:
    happened: list[str] = []

    def reserve() -> str:
        happened.append("reserved")
        return "seat 1"

    def release(seat: str) -> None:
        happened.append(f"released {seat}")

    @tool
    async def outer(ctx: BranchContext) -> None:
        await ctx.step(reserve, undo=release)
        await ctx.elicit_url("go", "https://example.org")
        happened.append("went on")

    asked = asyncio.Event()

    async def never(_: object) -> dict[str, str]:
        asked.set()
        await asyncio.Event().wait()
        return {}

    running = asyncio.ensure_future(run_tool(outer, {}, MockClient(elicits=never), replay=replay))
    await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert happened == ["reserved", "released seat 1"]
