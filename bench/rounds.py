"""One round of a call, early and late: the 5th against the 500th.

The tool asks one question in each of many branches, one after the other, as an agent does that works
through a list. A finished branch is folded into its value, so a late round replays values and not
what led to them. A round is all that a stateless server does between a request and its reply: read
the journal from its text, take the answer in, replay, run on to the next question, and write the
journal. Sealing and HTTP are measured elsewhere; here they would only hide growth.
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch.call import Answer, Journal
from anabranch.edges.opening import Runtime, new_journal, open_call
from anabranch.host import Host
from anabranch.messages import ElicitReply
from bench.measure import Row, time_in_turns

NAME = "rounds"
TURNS = 40
EARLY, LATE = 5, 500
TIMES = 10
"""How often each round is run in a turn."""


class Reply(BaseModel):
    """What each question asks for."""

    text: str


async def work(number: int) -> int:
    return number + 1


async def item(ctx: BranchContext, number: int) -> int:
    """One branch: two steps around a question."""
    number = await ctx.step(work, number)
    reply = await ctx.elicit(Reply, f"Item {number}: what about it?")
    assert isinstance(reply, Accepted)
    return await ctx.step(work, number)


@tool
async def agenda(ctx: BranchContext) -> int:
    """Work through more items than are measured."""
    total = 0
    for number in range(LATE + 1):
        total += await ctx.branch(item, number)
    return total


async def nowhere(_: object) -> None:
    """Take a notice."""


REPLY = ElicitReply(action="accept", content={"text": "yes"}).model_dump(mode="json")


async def run_round(state: str) -> str:
    """Answer what is open in ``state``, run the round, and return the state that it leaves."""
    journal = Journal.loads(state)
    journal.answer(dict.fromkeys(journal.pending, Answer(REPLY)))
    async with open_call(agenda, {}, journal, host=Host(), runtime=Runtime(), sink=nowhere) as call:
        await call.round()
    return journal.dumps()


async def rows() -> list[Row]:
    state = new_journal(Runtime()).dumps()
    before: dict[int, str] = {}
    for number in range(1, LATE + 1):
        before[number] = state
        state = await run_round(state)

    async def early() -> None:
        for _ in range(TIMES):
            await run_round(before[EARLY])

    async def late() -> None:
        for _ in range(TIMES):
            await run_round(before[LATE])

    times = await time_in_turns({"early": early, "late": late}, TURNS)
    micro = 1e6 / TIMES
    return [
        Row(NAME, f"round {LATE} / round {EARLY}", times.ratio("late", "early"), "x", 1.3),
        Row(NAME, f"round {EARLY}", times.best("early") * micro, "µs"),
        Row(NAME, f"round {LATE}", times.best("late") * micro, "µs"),
        Row(NAME, f"state before round {LATE}", len(before[LATE]) / LATE, "B each"),
    ]


def measure() -> list[Row]:
    """Return this benchmark's lines of the table."""
    return asyncio.run(rows())
