"""Law 2: an effect is recorded before its value is seen.

Looked at from the body: whatever it has seen of a step lies in the journal already, so that a
round which is thrown away right there cannot make the effect happen again.
"""

import asyncio

import pytest

from anabranch import BranchContext, StepFailed, tool
from anabranch._asking import Host
from anabranch._engine import Answer, Finished, Journal, Notice, Waiting, current_call
from anabranch.testing import run_tool
from anabranch.tool import Runtime, open_call


def recorded(step_id: str) -> bool:
    """Say whether the running call's journal holds ``step_id``."""
    return step_id in current_call().journal.entries


@pytest.mark.parametrize("replay", [True, False], ids=["replayed", "hot"])
async def test_values_seen_by_the_body_lie_in_the_journal(replay: bool) -> None:
    """Law 2, for values, errors and effects of threads."""
    seen: list[bool] = []

    async def effect() -> int:
        return 1

    def in_thread() -> int:
        return 2

    def failing() -> None:
        raise RuntimeError("x")

    async def inner(sub: BranchContext) -> int:
        value = await sub.step(effect)
        seen.append(recorded("outer/inner#1/effect.1"))
        return value

    @tool
    async def outer(ctx: BranchContext) -> None:
        assert not recorded("outer/effect.1")
        await ctx.step(effect)
        seen.append(recorded("outer/effect.1"))
        await ctx.step(in_thread)
        seen.append(recorded("outer/in_thread.1"))
        with pytest.raises(StepFailed):
            await ctx.step(failing)
        seen.append(recorded("outer/failing.1"))
        ctx.now()
        seen.append(recorded("outer/now.1"))
        await ctx.branch(inner)
        seen.append(recorded("outer/inner#1"))

    await run_tool(outer, {}, replay=replay)
    assert seen == [True] * 6


async def test_an_effect_that_ended_while_its_strand_was_cancelled_is_recorded() -> None:
    """Law 2: a thread cannot be interrupted, so what it did is written down."""
    entered, leave = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    undone: list[int] = []

    def in_thread() -> int:
        loop.call_soon_threadsafe(entered.set)
        asyncio.run_coroutine_threadsafe(leave.wait(), loop).result()
        return 7

    @tool
    async def outer(ctx: BranchContext) -> None:
        await ctx.step(in_thread, undo=undone.append)

    running = asyncio.ensure_future(run_tool(outer, {}))
    await entered.wait()
    running.cancel()
    await asyncio.sleep(0)
    leave.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert undone == [7]


async def test_a_state_that_is_replayed_again_and_again_makes_no_effect_happen_twice() -> None:
    """Law 2 along one chain of rounds: what a round has done lies in the state it returns."""
    happened: list[int] = []

    def happen(number: int) -> int:
        happened.append(number)
        return number

    @tool
    async def outer(ctx: BranchContext) -> list[int]:
        done: list[int] = []
        for number in range(3):
            done.append(await ctx.step(happen, number))
            await ctx.elicit_url(f"go on {number}", "https://example.org")
        return done

    async def nowhere(_: Notice) -> None: ...

    async def played(journal: Journal) -> Finished[list[int]] | Waiting:
        call = open_call(outer, {}, journal, host=Host(), runtime=Runtime(), sink=nowhere)
        async with call:
            return await call.round()

    journal = Journal("c", 0.0)
    while isinstance(outcome := await played(journal), Waiting):
        for _ in range(2):  # the answers got lost: nothing new but the same question
            assert await played(Journal.loads(journal.dumps())) == outcome
        journal = Journal.loads(journal.dumps())
        journal.answer({ask.step_id: Answer({"action": "accept"}) for ask in outcome.asks})
    assert outcome == Finished([0, 1, 2])
    assert happened == [0, 1, 2]
