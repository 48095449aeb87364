"""Tools that call tools: each called tool runs in a branch, with validated arguments and within
that branch's limits.
"""

from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Elicitation, HandoffTool, Limits, tool
from anabranch.errors import BranchDepthError, CapabilityError, InvalidArgumentsError, ToolError
from anabranch.messages import SampleRequest
from anabranch.testing import MockClient, run_tool
from anabranch.tool import Tool


class Seat(BaseModel):
    row: int


SEAT = Elicitation("seat", Seat)


@tool(elicits=[SEAT])
async def choose(ctx: BranchContext, plane: str, rows: int = 30) -> Seat:
    answer = await ctx.elicit("seat", f"{plane}, {rows} rows")
    return answer.content if isinstance(answer, Accepted) else Seat(row=0)


async def test_a_tool_is_called_by_itself_with_arguments_by_name(replay: bool) -> None:
    @tool
    async def outer(ctx: BranchContext) -> list[Seat]:
        return [await ctx.call_tool(choose, plane="A320"), Seat(row=ctx.depth)]

    client = MockClient(elicits=[{"row": 7}])
    assert await run_tool(outer, {}, client, replay=replay) == [Seat(row=7), Seat(row=0)]
    assert client.elicit_calls[0].message == "A320, 30 rows"


async def test_a_bound_tool_is_called_by_its_name(replay: bool) -> None:
    async def inner(sub: BranchContext) -> int:
        assert list(sub.tools) == ["choose"]
        seat: Seat = await sub.call_tool("choose", plane="A320")
        return seat.row + await sub.branch(deeper)

    async def deeper(sub: BranchContext) -> int:
        seat: Seat = await sub.call_tool("choose", plane="B777")
        return seat.row

    @tool
    async def outer(ctx: BranchContext) -> int:
        with pytest.raises(ToolError, match=r"No tool 'choose' is bound .*\(bound: none\)"):
            _ = ctx.call_tool("choose", plane="A320")
        return await ctx.branch(inner, tools=[choose])

    client = MockClient(elicits=[{"row": 1}, {"row": 2}])
    assert await run_tool(outer, {}, client, replay=replay) == 3


async def test_wrong_arguments_are_refused_before_anything_runs(replay: bool) -> None:
    @tool
    async def outer(ctx: BranchContext) -> dict[str, str]:
        with pytest.raises(InvalidArgumentsError) as raised:
            _ = ctx.call_tool(choose, rows="many")
        return raised.value.problems

    problems = await run_tool(outer, {}, MockClient(), replay=replay)
    assert sorted(problems) == ["plane", "rows"]


async def test_a_called_tool_sees_the_callers_conversation_as_its_parents(replay: bool) -> None:
    """A called tool has its own conversation, whoever calls the tool."""

    @tool
    async def callee(ctx: BranchContext) -> list[int]:
        await ctx.sample("mine")
        return [len(ctx.parent_messages), len(ctx.messages), ctx.depth]

    @tool
    async def outer(ctx: BranchContext) -> list[int]:
        await ctx.sample("theirs")
        return [*await ctx.call_tool(callee), len(ctx.messages)]

    client = MockClient(samples=lambda _: "x")
    assert await run_tool(outer, {}, client, replay=replay) == [2, 2, 1, 2]
    assert len(client.sample_calls[1].messages) == 1


async def test_a_tools_depth_limit_counts_from_the_tool(replay: bool) -> None:
    """The depth limit is a property of the tool, and independent of its caller."""

    async def nested(sub: BranchContext, levels: int) -> int:
        return await sub.branch(nested, levels - 1) if levels else sub.depth

    @tool(limits=Limits(max_depth=1))
    async def callee(ctx: BranchContext, levels: int) -> int:
        return await ctx.branch(nested, levels)

    @tool
    async def outer(ctx: BranchContext, levels: int) -> int:
        return await ctx.call_tool(callee, levels=levels)

    assert await run_tool(outer, {"levels": 0}, replay=replay) == 2
    with pytest.raises(BranchDepthError, match="depth 3 would exceed max_depth=2"):
        await run_tool(outer, {"levels": 1}, replay=replay)
    with pytest.raises(BranchDepthError, match="depth 2 would exceed max_depth=1"):
        await run_tool(outer, {"levels": 0}, replay=replay, limits=Limits(max_depth=1))


async def test_requirements_of_a_called_tool_are_checked_before_its_body_runs(replay: bool) -> None:
    entered: list[str] = []

    @tool(requires=["sampling"])
    async def callee(ctx: BranchContext) -> None:
        entered.append("callee")

    @tool
    async def outer(ctx: BranchContext) -> str:
        with pytest.raises(CapabilityError) as raised:
            await ctx.call_tool(callee)
        return raised.value.capability

    client = MockClient(capabilities={"elicitation"})
    assert await run_tool(outer, {}, client, replay=replay) == "sampling"
    assert entered == []


class Draw(HandoffTool):
    """Draw a card."""

    def __init__(self, deck: list[int]) -> None:
        self.deck = deck

    async def before(self, count: int) -> list[int]:
        return [self.deck.pop() for _ in range(count)]

    async def client(self, hand: list[int], ctx: BranchContext) -> int:
        await ctx.sample("which?")
        return hand[0]

    async def after(self, hand: list[int], picked: int) -> Seat:
        return Seat(row=picked)


async def test_a_handoff_tool_can_be_called_like_any_other(replay: bool) -> None:
    deck = [1, 2, 3]

    @tool
    async def outer(ctx: BranchContext, drawing: str) -> Seat:
        seat: Seat = await ctx.branch(through, drawing, tools=[Draw(deck)])
        await ctx.sample("and now?")
        return seat

    async def through(sub: BranchContext, drawing: str) -> Seat:
        seat: Seat = await sub.call_tool(drawing, count=2)
        return seat

    client = MockClient(samples=lambda _: "x")
    assert await run_tool(outer, {"drawing": "draw"}, client, replay=replay) == Seat(row=3)
    assert deck == [1]


@pytest.mark.parametrize("argument", ["tool", "self", "schema", "name"])
async def test_a_tool_may_have_a_parameter_of_any_name(argument: str) -> None:
    """``ctx.call`` passes the tool's arguments on, so its own parameter names must not clash with
    theirs.
    """
    made: dict[str, Any] = {}
    exec(f"async def callee(ctx, *, {argument}: str) -> str:\n return {argument}", made)  # noqa: S102
    callee: Tool[Any] = tool(made["callee"])

    @tool
    async def outer(ctx: BranchContext) -> str:
        return str(await ctx.call_tool(callee, **{argument: "given"}))

    assert await run_tool(outer, {}, MockClient()) == "given"


async def test_a_tool_name_with_a_slash_is_no_hindrance(replay: bool) -> None:
    """MCP allows slashes in tool names, and step ids are built with slashes."""

    @tool(name="files/read")
    async def read(ctx: BranchContext) -> str:
        return (await ctx.sample("read")).text

    @tool(name="files/list")
    async def outer(ctx: BranchContext) -> list[str]:
        return [await ctx.call_tool(read), ctx.path, (await ctx.sample("list")).text]

    def answer(request: SampleRequest) -> str:
        return f"{request.messages[-1].text} done"

    result = await run_tool(
        outer, {}, MockClient(samples=answer), replay=replay, limits=Limits(max_tokens=1000)
    )
    assert result == ["read done", "files/list", "list done"]
