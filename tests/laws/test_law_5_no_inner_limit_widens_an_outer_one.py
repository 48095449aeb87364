"""Law 5: no inner limit widens an outer one, for any nesting of runtime, tool and branches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch import (
    BranchContext,
    BranchDepthError,
    BranchTimeoutError,
    BranchTokenError,
    Limits,
    Usage,
    tool,
)
from anabranch.messages import SampleReply, SampleRequest, TextBlock, UrlRequest
from anabranch.testing import ManualClock, MockClient, run_tool

# From the outside in: the runtime's limit, the tool's, and one for each nested branch.
chains = st.lists(st.none() | st.integers(0, 6), min_size=2, max_size=7)
budgets = st.lists(st.none() | st.integers(1, 12).map(lambda n: n * 100), min_size=2, max_size=5)


def tightest(chain: list[int | None]) -> int | None:
    return min((limit for limit in chain if limit is not None), default=None)


@pytest.mark.requirement("law.5")
@pytest.mark.requirement("pitfall.policy-ceiling")
@settings(max_examples=80, deadline=None)
@given(chain=chains, replay=st.booleans())
async def test_a_branch_is_entered_if_and_only_if_every_depth_limit_around_it_allows(
    chain: list[int | None], replay: bool
) -> None:
    """Law 5, for depth; required: runtime policy is a ceiling."""
    runtime, own, *sites = chain
    entered: list[int] = []

    async def down(sub: BranchContext, left: list[int | None]) -> None:
        entered.append(sub.depth)
        if left:
            await sub.branch(down, left[1:], max_depth=left[0])

    @tool(limits=Limits(max_depth=own))
    async def outer(ctx: BranchContext) -> str:
        try:
            await down(ctx, sites)
        except BranchDepthError as error:
            return f"refused at {error.depth} by {error.max_depth}"
        return "through"

    result = await run_tool(outer, {}, limits=Limits(max_depth=runtime), replay=replay)
    expected = [0]
    for depth in range(1, len(sites) + 1):
        limit = tightest(chain[: depth + 2])
        if limit is not None and depth > limit:
            assert result == f"refused at {depth} by {limit}"
            break
        expected.append(depth)
    else:
        assert result == "through"
    assert entered == expected


@pytest.mark.requirement("law.5")
@pytest.mark.requirement("pitfall.policy-ceiling")
@settings(max_examples=60, deadline=None)
@given(chain=budgets, replay=st.booleans())
async def test_no_budget_inside_lets_a_branch_spend_more_than_those_around_it(
    chain: list[int | None], replay: bool
) -> None:
    """Law 5, for tokens: each level spends 100 at a time until it is refused."""
    runtime, own, *sites = chain
    spent: list[int] = []

    async def spend(sub: BranchContext, left: list[int | None]) -> None:
        if left:
            await sub.branch(spend, left[1:], max_tokens=left[0])
        else:
            for _ in range(20):
                await sub.sample(messages=[{"role": "user", "content": "x"}])

    @tool(limits=Limits(max_tokens=own))
    async def outer(ctx: BranchContext) -> bool:
        try:
            await spend(ctx, sites)
        except BranchTokenError:
            return False
        return True

    def costly(request: SampleRequest) -> SampleReply:
        spent.append(100)
        return SampleReply(content=(TextBlock(text="y"),), usage=Usage(output_tokens=100))

    client = MockClient(samples=costly)
    limits = Limits(max_tokens=runtime)
    through = await run_tool(outer, {}, client, limits=limits, replay=replay)
    budget = tightest(chain)
    assert through == (budget is None)
    assert sum(spent) == (2000 if budget is None else budget)


@pytest.mark.requirement("law.5")
@pytest.mark.requirement("pitfall.policy-ceiling")
@settings(max_examples=40, deadline=None)
@given(chain=chains, replay=st.booleans())
async def test_no_timeout_inside_outlasts_one_around_it(
    chain: list[int | None], replay: bool
) -> None:
    """Law 5, for time: each question takes a second and a half."""
    runtime, own, *sites = chain
    clock = ManualClock()

    async def wait(sub: BranchContext, left: list[int | None]) -> None:
        if left:
            await sub.branch(wait, left[1:], timeout=left[0])
        else:
            for _ in range(6):
                await sub.elicit_url("wait", "https://example.org")

    @tool(limits=Limits(timeout=own))
    async def outer(ctx: BranchContext) -> None:
        await wait(ctx, sites)

    def slow(_: UrlRequest) -> dict[str, str]:
        clock.advance(1.5)
        return {}

    client = MockClient(elicits=slow)
    limits = Limits(timeout=runtime)
    tight = tightest(chain)
    if tight is None:
        await run_tool(outer, {}, client, limits=limits, replay=replay, clock=clock)
        assert len(client.elicit_calls) == 6
    else:
        with pytest.raises(BranchTimeoutError):
            await run_tool(outer, {}, client, limits=limits, replay=replay, clock=clock)
        assert len(client.elicit_calls) == -(-tight // 1.5)
