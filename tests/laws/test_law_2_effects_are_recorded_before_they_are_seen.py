"""Law 2: an effect is recorded before its value is seen.

Looked at from the body: whatever it has seen of a step lies in the journal already, so that a
round which is thrown away right there cannot make the effect happen again.
"""

import asyncio
from typing import Any

import pytest

from anabranch import BranchContext, StepFailed, tool
from anabranch.call import Answer, Call, Finished, Journal, current_scope
from anabranch.edges.opening import Runtime, open_call
from anabranch.host import Host
from anabranch.testing import MockClient, run_tool


def recorded(step_id: str) -> bool:
    """Say whether the running call's journal holds ``step_id``."""
    return step_id in current_scope().strand.call.journal.entries


@pytest.mark.requirement("law.2")
@pytest.mark.parametrize("replay", [True, False], ids=["replayed", "hot"])
async def test_what_the_body_has_seen_lies_in_the_journal(replay: bool) -> None:
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


@pytest.mark.requirement("law.2")
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


@pytest.mark.requirement("law.2")
@pytest.mark.parametrize("kept", range(5))
async def test_a_server_that_dies_after_any_round_makes_no_effect_happen_twice(kept: int) -> None:
    """Law 2 along one chain of rounds: each is replayed from its text by a new process."""
    happened: list[int] = []

    @tool
    async def outer(ctx: BranchContext) -> list[int]:
        done: list[int] = []
        for number in range(4):
            done.append(await ctx.step(happen, number))
            await ctx.elicit_url(f"go on {number}", "https://example.org")
        return done

    def happen(number: int) -> int:
        happened.append(number)
        return number

    async def nowhere(_: object) -> None: ...

    def opened(text: str) -> Call[list[int]]:
        journal = Journal.loads(text)
        return open_call(outer, {}, journal, host=Host(), runtime=Runtime(), sink=nowhere)

    text = Journal("c", 0.0).dumps()
    outcome: Any = None
    for number in range(5):
        async with opened(text) as call:
            outcome = await call.round()
        if number == kept:  # the answer was lost on its way back: the same round once more
            journal = Journal.loads(call.journal.dumps())
            async with Call(call._body, journal, name="outer") as again:
                outcome = await again.round()
        if isinstance(outcome, Finished):
            break
        call.journal.answer({ask.step_id: Answer({"action": "accept"}) for ask in outcome.asks})
        text = call.journal.dumps()
    assert outcome == Finished([0, 1, 2, 3])
    assert happened == [0, 1, 2, 3]
