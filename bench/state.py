"""The bytes of plaintext of the state that travels between rounds, against its necessary content.

A stateless server must get the answer of each question back. So the answers' JSON, a list without names, is
the lower bound for a state by hand. The journal has more: the question of each answer, and a fingerprint of the
question. Answers are of two kinds: random answers, which no compression shortens, and answers that use the same
few words, as users do.

Branches: the rest that 100 finished branches leave must not depend on their length, since a finished
branch is folded into its value. So branches of 10 steps are compared with branches of none.
"""

from __future__ import annotations

import asyncio
import json
import random
import string
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch._asking import Host
from anabranch._engine import Answer, Finished, Journal
from anabranch.messages import ElicitReply
from anabranch.tool import Runtime, Tool, new_journal, open_call
from bench.measure import Row

NAME = "state"
WORDS = ["the", "window", "seat", "please", "in", "morning", "early", "flight", "no", "luggage"]


class Reply(BaseModel):
    """The answer to each question."""

    text: str


@tool
async def wizard(ctx: BranchContext, questions: int) -> list[str]:
    """Ask ``questions`` questions and one more."""
    answers: list[str] = []
    for number in range(1, questions + 2):
        reply = await ctx.elicit(Reply, f"Question {number}: what comes next?")
        assert isinstance(reply, Accepted)
        answers.append(reply.content.text)
    return answers


async def add_one(number: int) -> int:
    return number + 1


async def work(ctx: BranchContext, number: int, steps: int) -> int:
    for _ in range(steps):
        number = await ctx.step(add_one, number)
    return number


@tool
async def delegate(ctx: BranchContext, branches: int, steps: int) -> int:
    """Run branches one after the other, then ask."""
    total = 0
    for number in range(branches):
        total += await ctx.branch(work, number, steps)
    await ctx.elicit(Reply, "Go on?")
    return total


async def nowhere(_: object) -> None:
    """Drop a notice."""


async def last_state(
    made: Tool[Any], arguments: dict[str, Any], answer: Callable[[], str] = str
) -> tuple[str, list[Any]]:
    """Play a tool to its last question; return the state there, and the answers."""
    journal, given, state = new_journal(Runtime()), list[Any](), ""
    while True:
        async with open_call(
            made, arguments, journal, host=Host(), runtime=Runtime(), sink=nowhere
        ) as call:
            outcome = await call.round()
        if isinstance(outcome, Finished):
            return state, given[:-1]
        state = journal.dumps()
        journal = Journal.loads(state)
        content = {"text": answer()}
        given.append(content)
        reply = ElicitReply(action="accept", content=dict(content)).model_dump(mode="json")
        journal.answer({ask.step_id: Answer(reply) for ask in outcome.asks})


async def rows() -> list[Row]:
    chance = random.Random(8)
    letters = string.ascii_letters + string.digits

    def noise() -> str:
        return "".join(chance.choices(letters, k=30))

    def words() -> str:
        return " ".join(chance.choices(WORDS, k=5))

    measured: list[Row] = []
    for what, answer, goal in (("random", noise, 1.5), ("repeating", words, 1.0)):
        for questions in (8, 32):
            state, given = await last_state(wizard, {"questions": questions}, answer)
            floor = len(json.dumps(given, separators=(",", ":")))
            at = f"{questions} {what} answers"
            measured.append(
                Row(NAME, f"state after {at} / their JSON", len(state) / floor, "x", goal)
            )
            measured.append(Row(NAME, f"state after {at}", len(state) / questions, "B each"))
    sizes = {
        (branches, steps): len(
            (await last_state(delegate, {"branches": branches, "steps": steps}))[0]
        )
        for branches in (0, 100)
        for steps in (0, 10)
    }
    measured.append(
        Row(
            NAME,
            "state after 100 branches of 10 steps / of none",
            sizes[100, 10] / sizes[100, 0],
            goal=1.05,
        )
    )
    left = (sizes[100, 10] - sizes[0, 0]) / 100
    measured.append(Row(NAME, "what a finished branch leaves in the state", left, "B"))
    return measured


def measure() -> list[Row]:
    """Return the rows of this benchmark."""
    return asyncio.run(rows())
