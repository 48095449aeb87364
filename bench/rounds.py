"""One round of a call, early and late: the 5th against the 500th.

A round is the work of a stateless server between a request and its reply: read the journal from its
text, record the answer, replay, run to the next question, and write the journal. Other benchmarks measure
sealing and HTTP, which would hide growth here.

Two tools ask 512 questions each, and make a step of each answer. A finished branch is folded into its
value, so a late round replays values in place of their histories:

    nested   eight topics of eight parts of eight questions; each topic and part is a branch. The open
             work is a path: at most 7 topics, 7 parts and 8 questions, in each round
    flat     a branch for each question, one after the other in one loop. Its 499 finished branches
             are all open work of the loop: a round still replays the value of each
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch._asking import Host
from anabranch._engine import Answer, Journal
from anabranch.messages import ElicitReply
from anabranch.tool import Runtime, Tool, new_journal, open_call
from bench.measure import Row, Times, time_in_turns

NAME = "rounds"
TURNS = 40
EARLY, LATE = 5, 500
TIMES = 10
"""How often each round is run in a turn."""
EACH = 8


class Reply(BaseModel):
    """The answer to each question."""

    text: str


async def work(number: int) -> int:
    return number + 1


async def item(ctx: BranchContext, number: int) -> int:
    """Ask about an item, and make a step of the answer."""
    reply = await ctx.elicit(Reply, f"Item {number}: what about it?")
    assert isinstance(reply, Accepted)
    return await ctx.step(work, number)


async def part(ctx: BranchContext, number: int) -> int:
    return sum([await item(ctx, EACH * number + each) for each in range(EACH)])


async def topic(ctx: BranchContext, number: int) -> int:
    return sum([await ctx.branch(part, EACH * number + each) for each in range(EACH)])


@tool
async def nested(ctx: BranchContext) -> int:
    """Work through topics, and their parts."""
    return sum([await ctx.branch(topic, number) for number in range(EACH)])


@tool
async def flat(ctx: BranchContext) -> int:
    """Work through one long list."""
    return sum([await ctx.branch(item, number) for number in range(EACH**3)])


async def nowhere(_: object) -> None:
    """Drop a notice."""


REPLY = ElicitReply(action="accept", content={"text": "yes"}).model_dump(mode="json")


async def run_round(made: Tool[Any], state: str) -> str:
    """Answer the open questions in ``state``, run the round, and return the new state."""
    journal = Journal.loads(state)
    journal.answer(dict.fromkeys(journal.pending, Answer(REPLY)))
    call = open_call(made, {}, journal, host=Host(), runtime=Runtime(), sink=nowhere)
    async with call:
        await call.round()
    return journal.dumps()


async def measure_tool(made: Tool[Any]) -> tuple[Times, int]:
    """Return the times of an early and a late round, and the bytes of the state before the late round."""
    state = new_journal(Runtime()).dumps()
    before: dict[int, str] = {}
    for number in range(1, LATE + 1):
        before[number] = state
        state = await run_round(made, state)

    async def early() -> None:
        for _ in range(TIMES):
            await run_round(made, before[EARLY])

    async def late() -> None:
        for _ in range(TIMES):
            await run_round(made, before[LATE])

    return await time_in_turns({"early": early, "late": late}, TURNS), len(before[LATE])


async def rows() -> list[Row]:
    found: list[Row] = []
    for what, made, goal in (("nested", nested, 1.3), ("flat", flat, None)):
        times, size = await measure_tool(made)
        ratio = times.ratio("late", "early")
        micro = 1e6 / TIMES
        found += [
            Row(NAME, f"{what} branches: round {LATE} / round {EARLY}", ratio, "x", goal),
            Row(NAME, f"{what} branches: round {LATE}", times.best("late") * micro, "µs"),
            Row(NAME, f"{what} branches: state before round {LATE}", size, "B"),
        ]
    return found


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(rows())
