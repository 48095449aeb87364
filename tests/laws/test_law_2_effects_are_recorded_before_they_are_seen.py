"""Law 2: an effect is recorded before the body sees its value.

The tests look from the body: the journal already holds each value that the body has seen. If the
round ends right there, a replay therefore cannot repeat the effect.
"""

import asyncio

import pytest

from anabranch import BranchContext, StepFailed, tool
from anabranch._asking import Host
from anabranch._engine import Answer, Finished, Journal, Notice, Waiting, current_call
from anabranch.testing import run_tool
from anabranch.tool import Runtime, open_call


def recorded(step_id: str) -> bool:
    """Return whether the running call's journal holds ``step_id``."""
    return step_id in current_call().journal.entries


@pytest.mark.parametrize("replay", [True, False], ids=["replayed", "hot"])
async def test_the_journal_holds_values_that_the_body_has_seen(replay: bool) -> None:
    """Law 2 for values, errors and effects in threads."""
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


async def test_an_effect_is_recorded_if_its_strand_is_cancelled_meanwhile() -> None:
    """Law 2: a thread cannot be interrupted, so its effect is recorded."""
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


async def test_repeated_replays_of_a_state_repeat_no_effect() -> None:
    """Law 2 along a chain of rounds: the state that a round returns holds the effects of that round."""
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
        # The client's answers were lost, so each round asks the same question again.
        for _ in range(2):
            assert await played(Journal.loads(journal.dumps())) == outcome
        journal = Journal.loads(journal.dumps())
        journal.answer({ask.step_id: Answer({"action": "accept"}) for ask in outcome.asks})
    assert outcome == Finished([0, 1, 2])
    assert happened == [0, 1, 2]
