"""A TARGET for agents that show no questions and lend no model."""

from pathlib import Path

from pydantic import BaseModel, Field

from anabranch import Accepted, BranchContext, tool


class City(BaseModel):
    city: str


class Stay(BaseModel):
    nights: int = Field(ge=1, le=30)


class Trip(BaseModel):
    city: str
    nights: int


def do(effects: str, what: str) -> None:
    """Make an effect: append one line to a file."""
    with Path(effects).open("a") as file:
        file.write(f"{what}\n")


async def ask(ctx: BranchContext, effects: str) -> Trip | None:
    await ctx.step(do, effects, "search")
    where = await ctx.elicit(City, "Where to?")
    if not isinstance(where, Accepted):
        return None
    stay = await ctx.elicit(Stay, "How long?")
    if not isinstance(stay, Accepted):
        return None
    await ctx.step(do, effects, "book")
    return Trip(city=where.content.city, nights=stay.content.nights)


@tool
async def book(ctx: BranchContext, effects: str) -> str:
    """Ask two questions, one after the other, and do something before and after."""
    trip = await ask(ctx, effects)
    return "not booked" if trip is None else f"booked {trip.nights} nights in {trip.city}"


@tool
async def book_typed(ctx: BranchContext, effects: str) -> Trip:
    """The same, with an output schema."""
    return await ask(ctx, effects) or Trip(city="", nights=0)


@tool
async def tip(ctx: BranchContext) -> str:
    """Ask a model."""
    return (await ctx.sample("A tip?")).text
