"""Time and randomness: values from ``ctx`` repeat in every replay, and a replay notices other
values.
"""

import random
import time
import uuid
from collections.abc import Callable

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, NonDeterminismError, tool
from anabranch.testing import SequentialIds, run_tool
from tests.api.replaying import next_round, willing


class Yes(BaseModel):
    yes: bool = True


async def test_uuids_and_random_numbers_depend_on_their_place_and_call(replay: bool) -> None:
    seen: list[tuple[uuid.UUID, float]] = []

    @tool
    async def outer(ctx: BranchContext) -> None:
        async def draw(sub: BranchContext) -> tuple[str, float]:
            return str(sub.uuid()), sub.random.random()

        for _ in range(2):
            drawn = ctx.uuid(), ctx.random.random()
            await next_round(ctx)
            seen.append(drawn)
        for text, number in await ctx.gather(ctx.branch(draw), ctx.branch(draw)):
            seen.append((uuid.UUID(text), number))

    for _ in range(2):
        await run_tool(outer, {}, willing(), replay=replay, ids=SequentialIds())
    first_call = set(seen)
    assert len(first_call) == 4
    assert all(drawn.version == 4 for drawn, _ in first_call)
    await run_tool(outer, {}, willing(), replay=replay)
    assert len(set(seen)) == 8


def from_random() -> str:
    return str(random.random())


def from_time() -> str:
    return str(time.perf_counter_ns())


def from_uuid() -> str:
    return str(uuid.uuid4())


@pytest.mark.parametrize("chance", [from_random, from_time, from_uuid])
async def test_a_random_question_fails_in_the_authors_test(chance: Callable[[], str]) -> None:
    @tool
    async def outer(ctx: BranchContext) -> str:
        return (await ctx.elicit(Yes, f"Is it {chance()}?")).action

    with pytest.raises(NonDeterminismError) as raised:
        await run_tool(outer, {}, willing())
    assert raised.value.step_id == "outer/elicit.1"
    assert "Take time, randomness and I/O from ctx" in str(raised.value)
    assert await run_tool(outer, {}, willing(), replay=False) == "accept"
