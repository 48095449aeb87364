"""An agent whose tool notes effects in a file, and whose process dies at one of them.

The test runs the agent in a process of its own and kills that process. Another process continues
the turn.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from anabranch.agents import Agent, Question
from anabranch.mcp import Durability
from anabranch.messages import ElicitReply, SampleReply, SampleRequest, ToolResultBlock
from anabranch.stores import CallStore, open_stores
from anabranch.testing import MockModel, calls
from anabranch.tree import TreeStore
from tests.agents.harness import Answering

Stores = tuple[CallStore, TreeStore]
THREAD = "trip"
LEASE = 0.5


class Seats(BaseModel):
    number: int


def note(ledger: str, what: str, key: str) -> str:
    """Make one effect; the process dies at the effect that a file next to the ledger names."""
    fatal = Path(f"{ledger}.{what}")
    if fatal.exists():
        fatal.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    with Path(ledger).open("a", encoding="utf-8") as file:
        file.write(f"{what} {key}\n")
    return what


@tool
async def travel(ctx: BranchContext, ledger: str) -> str:
    await ctx.step(note, ledger, "reserve", ctx.idempotency_key)
    await ctx.step(note, ledger, "hold", ctx.idempotency_key)
    answer = await ctx.elicit(Seats, "How many?")
    number = answer.content.number if isinstance(answer, Accepted) else 0
    await ctx.step(note, ledger, f"book-{number}", ctx.idempotency_key)
    await ctx.step(note, ledger, f"print-{number}", ctx.idempotency_key)
    return f"{ctx.call_id} has {number} seats"


def three_seats(_: Question) -> ElicitReply:
    return ElicitReply(action="accept", content={"number": 3})


def make_agent(stores: Stores, ledger: str) -> Agent:
    """Return an agent whose model calls the tool once, and repeats the result."""

    def decide(request: SampleRequest) -> SampleReply | str:
        for block in request.messages[-1].content:
            if isinstance(block, ToolResultBlock):
                return "".join(part.text for part in block.content if part.type == "text")
        return calls(("use", "travel", {"ledger": ledger}))

    call_store, tree_store = stores
    return Agent(
        tree_store,
        MockModel(decide),
        tools=[travel],
        user=Answering(three_seats),
        calls=Durability(call_store, lease=LEASE),
    )


async def die(
    open_both: Callable[[], Stores], ledger: str, report: Callable[[object], None]
) -> None:
    """Run the turn until the turn or this process ends."""
    agent = make_agent(open_both(), ledger)
    thread = await agent.begin()
    report(thread.id)
    await agent.say(thread.id, "Travel")
    report("survived")


def open_both(url: str) -> Stores:
    return open_stores(url)
