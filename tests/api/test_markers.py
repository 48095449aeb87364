"""``ctx.patched``: the ways of a tool before and after a change, chosen by how far a call has come."""

import pytest
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch.testing import MockClient, run_tool


class Yes(BaseModel):
    yes: bool = True


@pytest.mark.parametrize("replay", [True, False])
async def test_a_new_call_takes_the_new_way_everywhere(replay: bool) -> None:
    """Contract: calls that begin after the change take the new way, in branches as well."""

    @tool
    async def outer(ctx: BranchContext) -> list[bool]:
        async def inner(branch: BranchContext) -> bool:
            await branch.elicit(Yes, "Inside?")
            return await branch.patched("limit")

        before = await ctx.patched("limit")
        answer, *ways = await ctx.gather(ctx.elicit(Yes, "?"), ctx.branch(inner), ctx.branch(inner))
        assert isinstance(answer, Accepted)
        return [before, *ways, await ctx.patched("limit"), await ctx.patched("another")]

    client = MockClient(elicits=lambda _: {})
    assert await run_tool(outer, {}, client, replay=replay) == [True] * 5


@pytest.mark.parametrize("name", ["", "a/b", "a#1"])
async def test_a_marker_has_a_name_like_a_key(name: str) -> None:
    @tool
    async def outer(ctx: BranchContext) -> bool:
        return await ctx.patched(name)

    with pytest.raises(ValueError, match="name"):
        await run_tool(outer, {})
