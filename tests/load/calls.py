"""A tool that uses most features, and a way to run its calls round by round without a transport."""

import asyncio
from typing import Any

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Capabilities, Elicitation, tool
from anabranch._asking import Host
from anabranch._durable import CallService, Job
from anabranch._engine import Answer, Ask, Finished, Notice


class Go(BaseModel):
    on: bool


GO = Elicitation("go", Go)
ROUNDS = 3
ANSWERS = {
    "elicit": Answer({"action": "accept", "content": {"on": True}}),
    "sample": Answer({"role": "assistant", "content": [{"type": "text", "text": "yes"}]}),
}


async def bring(what: str) -> str:
    return what


async def take_back(what: str) -> None:
    await asyncio.sleep(0)


async def side(ctx: BranchContext, number: int) -> str:
    said = await ctx.sample(f"On from {number}?")
    return await ctx.step(bring, said.text, undo=take_back)


@tool(elicits=[GO])
async def busy(ctx: BranchContext, number: int) -> str:
    """Ask and run several steps, in three rounds."""
    brought = await ctx.step(bring, f"{number}", undo=take_back)
    left, right = await ctx.gather(ctx.branch(side, number), ctx.branch(side, -number))
    await ctx.notify("half done")
    answer = await ctx.elicit(GO, "On?")
    on = isinstance(answer, Accepted) and answer.content.on
    return f"{brought} {left} {right} {on}"


Reply = tuple[dict[str, str], str]
"""The kinds of the open questions by step, and the state."""


class Replies:
    kind = "load"

    def make(self, asks: tuple[Ask, ...], state: str) -> Reply:
        return {ask.step_id: ask.kind for ask in asks}, state

    def dump(self, reply: Reply) -> dict[str, Any]:
        return dict(reply[0])

    def load(self, stored: dict[str, Any], state: str) -> Reply:
        return dict(stored), state


async def _nowhere(notice: Notice) -> None:
    await asyncio.sleep(0)


JOB = Job(busy, {"number": 1}, Host(Capabilities()), _nowhere)


async def play(calls: CallService) -> int:
    """Run a call to its end; return its number of rounds."""
    journal, asked = calls.new(), dict[str, str]()
    for number in range(1, 10):
        answers = {step_id: ANSWERS[kind] for step_id, kind in asked.items()}
        outcome = await calls.run_round(JOB, journal, answers, Replies())
        if isinstance(outcome, Finished):
            assert outcome.value == "1 yes yes True"
            return number
        asked, state = outcome
        journal = await calls.stored.load(state)
    raise AssertionError("it does not end")
