"""The cost of a long ``ctx.converse``, against a conversation of half the length; in proportion, the ratio is 2.

The model calls a tool in each of its replies but the last. The body stays alive, as in the handshake
era and in an agent's own process, so each request is made once.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise

from anabranch import BranchContext, tool
from anabranch.messages import SampleReply, ToolUseBlock
from anabranch.testing import MockClient, run_tool
from bench.measure import Row, time_in_turns

NAME = "conversing"
SIZES = (100, 200, 400)
TURNS = 5
GOAL = 2.5


@tool
async def look(_ctx: BranchContext, number: int) -> str:
    """Look."""
    return f"Seen {number}: " + "what there was to see. " * 10


@tool
async def talk(ctx: BranchContext, requests: int) -> str:
    """Let the model look, again and again."""
    return (await ctx.converse("Look around.", tools=[look], max_rounds=requests)).text


async def conversation(requests: int) -> None:
    """Hold a conversation with this number of requests."""
    uses = [
        ToolUseBlock(id=f"use_{number}", name="look", input={"number": number})
        for number in range(requests - 1)
    ]
    replies = [SampleReply(content=(use,), stop_reason="toolUse") for use in uses]
    client = MockClient(samples=[*replies, "That is all."])
    assert await run_tool(talk, {"requests": requests}, client, replay=False) == "That is all."


def measure() -> list[Row]:
    """Measure conversations of several lengths, in turns."""
    contenders = {str(size): partial(conversation, size) for size in SIZES}
    times = asyncio.run(time_in_turns(contenders, TURNS))
    rows: list[Row] = []
    for shorter, longer in pairwise(SIZES):
        what = f"a conversation with {longer} requests / {shorter}"
        rows.append(Row(NAME, what, times.ratio(str(longer), str(shorter)), goal=GOAL))
    most = SIZES[-1]
    each = times.best(str(most)) / most * 1000
    rows.append(Row(NAME, f"a request of a conversation with {most}", each, "ms"))
    return rows
