"""Law 4: a branch's inner history never reaches its parent; its one value does."""

import asyncio

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, Message, ToolError, tool
from anabranch.messages import SampleRequest
from anabranch.testing import MockClient, run_tool

SECRET = "what was said inside"


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


def echo(request: SampleRequest) -> str:
    return f"re: {request.messages[-1].text}"


both_ways = pytest.mark.parametrize("replay", [True, False], ids=["replayed", "hot"])


class Verdict(BaseModel):
    good: bool


class Opaque(Verdict):
    """A value that does not fold: the branch function declares another return type."""


async def inside(sub: BranchContext, value: Verdict) -> Verdict:
    await sub.sample(SECRET)
    await sub.elicit_url(SECRET, "https://example.org")
    return value


@both_ways
@pytest.mark.parametrize("value", [Verdict(good=True), Opaque(good=True)], ids=["folds", "stays"])
async def test_a_branch_returns_its_value_and_not_its_history(value: Verdict, replay: bool) -> None:
    """Law 4, whether or not the journal can fold the branch."""

    @tool
    async def outer(ctx: BranchContext) -> list[str]:
        await ctx.sample("before")
        assert await ctx.branch(inside, value) == value
        first, second = await ctx.gather(ctx.branch(inside, value), ctx.branch(inside, value))
        assert first == second == value
        await ctx.sample("after")
        return texts(ctx.messages)

    client = MockClient(samples=echo, elicits=lambda _: {})
    said = await run_tool(outer, {}, client, replay=replay)
    assert said == ["before", "re: before", "after", "re: after"]
    assert texts(client.sample_calls[-1].messages) == ["before", "re: before", "after"]


@both_ways
async def test_a_failed_branch_leaves_no_history(replay: bool) -> None:
    """Law 4, for branches that end in an error."""

    async def failing(sub: BranchContext) -> None:
        await sub.sample(SECRET)
        raise ToolError("no")

    @tool
    async def outer(ctx: BranchContext) -> list[str]:
        with pytest.raises(ToolError):
            await ctx.branch(failing)
        await ctx.sample("after")
        return texts(ctx.messages)

    client = MockClient(samples=echo)
    assert await run_tool(outer, {}, client, replay=replay) == ["after", "re: after"]


@both_ways
async def test_an_escaped_context_reveals_nothing_after_its_branch(replay: bool) -> None:
    """Law 4 for contexts that are used after their branch has ended."""

    @tool
    async def outer(ctx: BranchContext) -> list[str]:
        escaped: list[BranchContext] = []

        async def leaking(sub: BranchContext) -> int:
            escaped.append(sub)
            await sub.sample(SECRET)
            return len(sub.messages)

        await ctx.sample("before")
        assert await ctx.branch(leaking) == 4
        return [text for sub in escaped for text in texts(sub.messages)]

    said = await run_tool(outer, {}, MockClient(samples=echo), replay=replay)
    assert said == ["before", "re: before"]


@both_ways
async def test_sibling_branches_do_not_see_each_others_messages(replay: bool) -> None:
    """Law 4 between concurrent branches."""

    async def sibling(sub: BranchContext, name: str) -> list[str]:
        for number in range(2):
            await sub.sample(f"{name}{number}")
            await asyncio.sleep(0)
        return texts(sub.messages)[::2]

    @tool
    async def outer(ctx: BranchContext) -> list[list[str]]:
        return list(await ctx.gather(ctx.branch(sibling, "a"), ctx.branch(sibling, "b")))

    client = MockClient(samples=echo)
    assert await run_tool(outer, {}, client, replay=replay) == [["a0", "a1"], ["b0", "b1"]]
