"""The tools that agents of other projects call; they write their effects to the file ``EFFECTS``."""

import os
import random
import string
from pathlib import Path

from pydantic import BaseModel, Field

from anabranch import Accepted, BranchContext, Elicitation, StoreError, ToolError, tool


class Stay(BaseModel):
    nights: int = Field(ge=1, le=30)


class Guest(BaseModel):
    name: str


STAY = Elicitation("stay", Stay)
GUEST = Elicitation("guest", Guest)


def effects() -> list[str]:
    return Path(os.environ["EFFECTS"]).read_text().splitlines()


def note(what: str) -> str:
    with Path(os.environ["EFFECTS"]).open("a") as written:
        written.write(f"{what}\n")
    return what


def cancel(what: str) -> None:
    note(f"undo {what}")


@tool(elicits=[STAY, GUEST])
async def book(ctx: BranchContext, city: str) -> str:
    """Book a hotel: a step, a question, another one, and a step."""
    await ctx.step(note, f"search {city}", undo=cancel)
    await ctx.notify("searched", 1, 2)
    stay = await ctx.elicit(STAY, f"How long in {city}?")
    if not isinstance(stay, Accepted):
        return f"stay: {stay.action}"
    guest = await ctx.elicit(GUEST, "Who?")
    if not isinstance(guest, Accepted):
        return f"guest: {guest.action}"
    await ctx.step(note, f"book {city}")
    return f"{stay.content.nights} nights in {city} for {guest.content.name}"


@tool(elicits=[STAY, GUEST])
async def plan(ctx: BranchContext, city: str) -> dict[str, str]:
    """Ask two questions at once."""
    await ctx.step(note, f"plan {city}")
    stay, guest = await ctx.gather(ctx.elicit(STAY, "How long?"), ctx.elicit(GUEST, "Who?"))
    await ctx.step(note, f"planned {city}")
    return {"stay": stay.action, "guest": guest.action}


@tool(elicits=[GUEST])
async def tip(ctx: BranchContext) -> str:
    """Ask the model, then the user."""
    sampled = await ctx.sample("An umbrella?")
    guest = await ctx.elicit(GUEST, f"{sampled.text} Who?")
    return f"{sampled.text} {guest.action}"


def read() -> str:
    return "".join(random.Random(1).choices(string.ascii_letters, k=50_000))


@tool(elicits=[GUEST])
async def summarise(ctx: BranchContext) -> str:
    """Read much, then ask."""
    text = await ctx.step(read)
    guest = await ctx.elicit(GUEST, "For whom?")
    return f"{text[:20]} and {len(text) - 20} more, {guest.action}"


@tool
async def pay(ctx: BranchContext) -> str:
    """Send the user to a page."""
    return (await ctx.elicit_url("Pay here.", "https://pay.example/1")).action


@tool
async def nap(ctx: BranchContext) -> str:
    """Sleep for a day."""
    await ctx.sleep(86_400)
    return "awake"


@tool
async def closed(ctx: BranchContext) -> str:
    """Refuse."""
    raise ToolError("We are closed.")


@tool(elicits=[GUEST])
async def fail(ctx: BranchContext) -> str:
    """Fail after a question, with an error of no known type."""
    await ctx.step(note, "hold", undo=cancel)
    await ctx.elicit(GUEST, "Who?")
    raise OSError("a secret")


@tool
async def fail_at_once(ctx: BranchContext) -> str:
    """Fail before it asks, the first time."""
    await ctx.step(note, "charge", undo=cancel)
    if effects().count("charge") == 1:
        raise OSError("passing")
    return "paid"


@tool(elicits=[GUEST])
async def lock(ctx: BranchContext) -> str:
    """Ask, and meet a store that does not answer the first time."""
    await ctx.elicit(GUEST, "Who?")
    if "locked" not in effects():
        note("locked")
        raise StoreError("It is locked.")
    return "unlocked"


@tool(elicits=[GUEST])
async def greet(ctx: BranchContext) -> str:
    """Run another step in each version of the code, and ask."""
    await ctx.step(note, f"version {os.environ['VERSION']}")
    guest = await ctx.elicit(GUEST, "Who?")
    return f"hello, {guest.action}"


TOOLS = {
    each.name: each
    for each in (book, plan, tip, summarise, pay, nap, closed, fail, fail_at_once, lock, greet)
}
