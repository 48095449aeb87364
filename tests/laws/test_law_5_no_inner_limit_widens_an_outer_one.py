"""Law 5: no inner limit widens an outer one, for any nesting of runtime, tool and branches."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch import BranchContext, Limits, Usage, tool
from anabranch._asking import Host
from anabranch._engine import Answer, Finished, Journal, Notice
from anabranch._engine import Ask as Asked
from anabranch.errors import BranchDepthError, BranchTimeoutError, BranchTokenError
from anabranch.messages import SampleReply, SampleRequest, TextBlock, UrlRequest
from anabranch.testing import ManualClock, MockClient, run_tool
from anabranch.tool import Runtime, Tool, open_call
from tests.randomised import examples

# From the outside in: the runtime's limit, the tool's limit, and one for each nested branch.
chains = st.lists(st.none() | st.integers(0, 6), min_size=2, max_size=7)
budgets = st.lists(st.none() | st.integers(1, 12).map(lambda n: n * 100), min_size=2, max_size=5)


def tightest(chain: list[int | None]) -> int | None:
    return min((limit for limit in chain if limit is not None), default=None)


@examples(80, gate=30)
@given(chain=chains, replay=st.booleans())
async def test_a_branch_is_entered_if_and_only_if_every_depth_limit_around_it_allows(
    chain: list[int | None], replay: bool
) -> None:
    """Law 5 for depth. The runtime's policy is a ceiling, as required."""
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


@examples(60, gate=20)
@given(chain=budgets, replay=st.booleans())
async def test_an_inner_budget_never_exceeds_the_budgets_around_it(
    chain: list[int | None], replay: bool
) -> None:
    """Law 5 for tokens: each level spends 100 tokens at a time until it is refused."""
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


@dataclass(frozen=True)
class Ask:
    """One sample: the requested tokens, the used tokens, and the duration."""

    prompt: str
    most: int
    used: int
    delay: int


@dataclass(frozen=True)
class AtOnce:
    """Parts that start at the same time, each in its own branch, within one budget."""

    budget: int | None
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class InTurn:
    """Parts that run one after the other."""

    parts: tuple[Any, ...]


_asks = st.builds(
    Ask,
    st.sampled_from(["a", "some words", "word " * 20]),
    st.integers(1, 200),
    st.integers(1, 300),
    st.integers(0, 6),
)
_spending = st.recursive(
    _asks,
    lambda parts: st.one_of(
        st.builds(AtOnce, st.none() | st.integers(0, 600), st.lists(parts, max_size=4).map(tuple)),
        st.builds(InTurn, st.lists(parts, max_size=4).map(tuple)),
    ),
    max_leaves=15,
)


class Ledger:
    """The tokens that were requested and used in each branch with a budget."""

    def __init__(self) -> None:
        self.sent: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.budgets: dict[str, int] = {}

    async def run(self, ctx: BranchContext, part: Any) -> list[Any]:
        match part:
            case Ask():
                return [await self.ask(ctx, part)]
            case AtOnce(budget, parts):
                return await ctx.branch(self.at_once, parts, budget, max_tokens=budget)
            case InTurn(parts):
                return [seen for each in parts for seen in await self.run(ctx, each)]
            case _:
                raise AssertionError(part)

    async def at_once(
        self, ctx: BranchContext, parts: tuple[Any, ...], budget: int | None
    ) -> list[Any]:
        if budget is not None:
            self.budgets[ctx.path] = budget
        seen = await ctx.gather(*(ctx.branch(self.run, each) for each in parts))
        return [one for each in seen for one in each]

    async def ask(self, ctx: BranchContext, wanted: Ask) -> str:
        prompt = f"{ctx.path}|{wanted.used}|{wanted.delay}|{wanted.prompt}"
        try:
            message = {"role": "user", "content": prompt}
            return (await ctx.sample(messages=[message], max_tokens=wanted.most)).text
        except BranchTokenError as error:
            return str(error)

    def reply(self, request: SampleRequest) -> SampleReply:
        path, used, _, _ = request.messages[-1].text.split("|")
        self.sent[path].append((int(used), request.max_tokens))
        return SampleReply(
            content=(TextBlock(text="y"),), usage=Usage(input_tokens=1, output_tokens=int(used) - 1)
        )

    def check(self, root: int) -> None:
        """Assert that each budget is exceeded at most by the tokens that replies used beyond their grants."""
        for path, budget in {**self.budgets, "spend": root}.items():
            inside = [
                one
                for branch, sent in self.sent.items()
                if branch == path or branch.startswith(f"{path}/")
                for one in sent
            ]
            beyond = sum(max(0, used - granted) for used, granted in inside)
            assert sum(used for used, _ in inside) <= budget + beyond


@examples(100, gate=40)
@given(part=_spending, budget=st.integers(0, 1_000), seed=st.integers(0, 99))
async def test_a_budget_is_exceeded_by_at_most_one_reply_per_request_in_any_order_of_answers(
    part: Any, budget: int, seed: int
) -> None:
    """Law 5 for simultaneous requests: live, and replayed by a client that answers a few at a time."""
    alive, replayed, chance = Ledger(), Ledger(), random.Random(seed)

    @tool(name="spend", limits=Limits(max_tokens=budget))
    async def spend_alive(ctx: BranchContext) -> list[Any]:
        return await alive.run(ctx, part)

    async def answer(request: SampleRequest) -> SampleReply:
        for _ in range(int(request.messages[-1].text.split("|")[2])):
            await asyncio.sleep(0)
        return alive.reply(request)

    await run_tool(spend_alive, {}, MockClient(samples=answer), replay=False)
    alive.check(budget)

    @tool(name="spend", limits=Limits(max_tokens=budget))
    async def spend(ctx: BranchContext) -> list[Any]:
        return await replayed.run(ctx, part)

    def answer_some(asks: Sequence[Asked]) -> dict[str, Answer]:
        chosen = chance.sample(asks, chance.randint(1, len(asks)))
        return {
            ask.step_id: Answer(replayed.reply(ask.request).model_dump(mode="json"))
            for ask in chosen
        }

    first = await in_rounds(spend, answer_some)
    replayed.check(budget)
    assert isinstance(first, list)


async def in_rounds(made: Tool[Any], answer: Callable[[Sequence[Asked]], Any]) -> Any:
    """Run a tool in rounds, each from the text of the journal, and return its value."""

    async def nowhere(_: Notice) -> None: ...

    journal = Journal("c", 0.0)
    while True:
        call = open_call(made, {}, journal, host=Host(), runtime=Runtime(), sink=nowhere)
        async with call:
            outcome = await call.round()
        if isinstance(outcome, Finished):
            assert journal.reserved == {}
            return outcome.value
        journal = Journal.loads(journal.dumps())
        journal.answer(answer(outcome.asks))


@examples(40, gate=20)
@given(chain=chains, replay=st.booleans())
async def test_an_inner_timeout_never_outlasts_an_outer_one(
    chain: list[int | None], replay: bool
) -> None:
    """Law 5 for time: each question takes a second and a half."""
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
