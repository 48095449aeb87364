"""The process dies in the middle of rounds; a retry of the same round gives the same result.

Hypothesis generates programs of questions, effects, branches and tasks, sequential and concurrent.
A round is lost in one of two ways: its journal is discarded, or the round is interrupted after a
random number of steps of the loop. Then the round is retried from the text that the client still
has. Effects of an interrupted round are undone at the interruption (``test_effects.py``). Effects
of answered rounds happen once.
"""

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch._engine import Branch, Finished, Journal
from tests.engine.harness import World, ask, branch, gather, loudly, race, rounds, step
from tests.randomised import examples

Program = list[Any]

LEAVES = st.sampled_from(["ask", "step", "tick"])
PROGRAMS: st.SearchStrategy[Program] = st.recursive(
    st.lists(LEAVES, min_size=1, max_size=3),
    lambda inner: st.lists(
        LEAVES
        | st.tuples(st.sampled_from(["branch", "task"]), inner)
        | st.tuples(st.just("gather"), st.lists(inner, min_size=2, max_size=3)),
        min_size=1,
        max_size=3,
    ),
    max_leaves=8,
)


class Run:
    """One program and its effects."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.effects: Counter[str] = Counter()

    async def body(self, root: Branch) -> Any:
        return [await self.sequence(self.program, "p"), await race(ask("last"), ask("last too"))]

    async def sequence(self, program: Program, place: str) -> list[Any]:
        said: list[Any] = []
        for number, item in enumerate(program):
            said.append(await self.item(item, f"{place}.{number}"))
        return said

    async def item(self, item: Any, place: str) -> Any:
        if item == "ask":
            return await ask(place)
        if item == "step":
            return await step(self.effect, place)
        if item == "tick":
            return await asyncio.sleep(0)
        kind, inner = item
        if kind == "gather":
            parts = [self.sequence(part, f"{place}.{n}") for n, part in enumerate(inner)]
            return await gather(parts)
        if kind == "task":
            return await asyncio.create_task(self.sequence(inner, place))

        async def in_branch(_: Branch) -> Any:
            return await self.sequence(inner, place)

        return await branch(in_branch)

    async def effect(self, place: str) -> str:
        self.effects[place] += 1
        return f"effect {place}"


async def with_crashes(run: Run, crashes: list[int]) -> tuple[Any, Counter[str]]:
    """Run to the end, losing a round for each of ``crashes``; return the value and the recorded effects."""
    world = World()
    text = world.journal().dumps()
    recorded: Counter[str] = Counter()
    while True:
        before = run.effects.copy()
        journal = Journal.loads(text)
        ticks = crashes.pop() if crashes else None
        async with world.call(run.body, journal) as call:
            trying = asyncio.create_task(call.round())
            if ticks is not None and await is_broken_off(trying, ticks):
                continue
            outcome = await trying
        if ticks is not None:
            continue  # the reply is lost on its way
        recorded.update(run.effects - before)
        if isinstance(outcome, Finished):
            return outcome.value, recorded
        journal.answer({asked.step_id: loudly(asked.request) for asked in outcome.asks})
        text = journal.dumps()


async def is_broken_off(trying: asyncio.Task[Any], ticks: int) -> bool:
    for _ in range(ticks):
        await asyncio.sleep(0)
    trying.cancel()
    await asyncio.wait([trying])
    return trying.cancelled()


@examples(60, gate=40)
@given(PROGRAMS, st.lists(st.integers(0, 40), max_size=6))
def test_a_lost_round_can_be_retried(program: Program, crashes: list[int]) -> None:
    async def both() -> None:
        calm = Run(program)
        expected = (await rounds(calm.body)).value
        value, recorded = await with_crashes(Run(program), list(crashes))
        assert value == expected
        assert recorded == calm.effects
        assert set(recorded.values()) <= {1}

    asyncio.run(both())
