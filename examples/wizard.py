from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool


class Trip(BaseModel):
    city: str


def reserve(city: str, days: int) -> str:
    return f"{city[:3].upper()}-{days}"


@tool
async def plan_trip(ctx: BranchContext, days: int = 3) -> str:
    """Plan a trip together with the traveller."""
    trip = await ctx.elicit(Trip, f"Where do you want to spend {days} days?")
    if not isinstance(trip, Accepted):
        return "No trip."
    ticket = await ctx.step(reserve, trip.content.city, days)
    plan = await ctx.sample(f"Plan {days} days in {trip.content.city}, in one sentence.")
    return f"{ticket}: {plan.text}"
