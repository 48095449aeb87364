"""The time in which a waiting tool of a chat continues after its answer, from its journal on SQLite.

Conversations and calls are in one file. The turn has ended at the question. Each answer reads the
conversation and the call, and replays the tool. The time ends when the tool runs the line after its
question; by then the store has the answer.
"""

from __future__ import annotations

import asyncio
import tempfile
from statistics import quantiles
from time import perf_counter

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Capabilities, Elicitation, tool
from anabranch.agents import Agent
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, ToolResultBlock
from anabranch.stores import open_stores
from anabranch.testing import MockModel, calls
from bench.measure import Row

NAME = "answers"
CALLS = 200
STEPS = 5


class Seat(BaseModel):
    """The answer to the question."""

    row: int


SEAT = Elicitation("seat", Seat)
RESUMED: list[float] = []


def look(number: int) -> int:
    return number


@tool(elicits=[SEAT])
async def reserve(ctx: BranchContext) -> str:
    """Look at some flights, ask, and note the time of the answer."""
    for number in range(STEPS):
        await ctx.step(look, number)
    answer = await ctx.elicit(SEAT, "Which seat?")
    RESUMED.append(perf_counter())
    return f"Row {answer.content.row}" if isinstance(answer, Accepted) else "none"


def reply(request: SampleRequest) -> SampleReply:
    last = request.messages[-1].content[-1]
    return calls(text="Done.") if isinstance(last, ToolResultBlock) else calls(("u", "reserve", {}))


async def answer_many(folder: str) -> list[float]:
    """Return the seconds from each answer until its tool continued."""
    stored, trees = open_stores(f"sqlite:///{folder}/chat.db")
    agent = Agent(
        trees, MockModel(reply), tools=[reserve], calls=stored, capabilities=Capabilities()
    )
    given = ElicitReply(action="accept", content={"row": 3})
    late: list[float] = []
    for _ in range(CALLS + 10):
        question = await agent.say((await agent.begin()).id, "reserve")
        assert question.kind == "question", question
        start = perf_counter()
        await agent.answer(question.id, given)
        late.append(RESUMED[-1] - start)
    await trees.close()
    return late[10:]


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        late = asyncio.run(answer_many(folder))
    what = f"a tool of {STEPS} steps continues after its answer, SQLite"
    return [
        Row(NAME, f"{what}, p95", quantiles(late, n=20)[-1] * 1e3, "ms", 20),
        Row(NAME, f"{what}, median", quantiles(late, n=2)[0] * 1e3, "ms"),
    ]
