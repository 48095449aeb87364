"""Book a flight: nearly every feature of the author's API in one tool.

A dictionary in this process takes the place of the airline. With a real airline, the rest of the
file stays the same. Start to read at ``book_flight``.
"""

from typing import Literal

import anyio
from pydantic import BaseModel, Field

from anabranch import (
    Accepted,
    BranchContext,
    CapabilityError,
    Elicitation,
    Limits,
    ToolError,
    tool,
    user,
)


class Flight(BaseModel):
    """A flight that the airline offers."""

    number: str
    price: int
    hours: float


class Recommendation(BaseModel):
    """The structured reply of the model."""

    number: str
    reason: str


class Confirm(BaseModel):
    """The first question to the user, which the tool declares."""

    ok: bool


class Extras(BaseModel):
    """The second question: any flat model describes a form."""

    seat: Literal["window", "aisle"] = "window"
    bags: int = Field(default=0, ge=0, le=3)


class Booking(BaseModel):
    """The value of the tool; clients receive it as structured content."""

    booked: bool
    ticket: str | None = None
    receipt: str | None = None
    summary: str


CONFIRM = Elicitation("confirm", Confirm)

HOLDS: set[str] = set()
TICKETS: dict[str, str] = {}
OFFERS = [
    Flight(number="AB1", price=420, hours=9.5),
    Flight(number="AB2", price=280, hours=14),
    Flight(number="AB3", price=990, hours=7),
]
LATENCY = {"near": 0.0, "far": 3600.0}
LOUNGES = ["North", "South", "East"]


# Effects. Each runs once per call, since the tool calls them by ``ctx.step`` alone.


def search_flights(destination: str, budget: int) -> list[Flight]:
    """Ask the airline for its flights. A plain function runs in a thread and may block."""
    return [flight for flight in OFFERS if destination and flight.price <= budget]


async def exchange_rate(bank: str) -> float:
    """Ask a bank for its rate: ``near`` answers soon, ``far`` answers late."""
    await anyio.sleep(LATENCY[bank])
    return 1.1


def hold_seat(number: str, seat: str) -> str:
    """Hold a seat."""
    HOLDS.add(f"{number}/{seat}")
    return f"{number}/{seat}"


def release_seat(held: str) -> None:
    """Undo ``hold_seat``, whose value this function receives."""
    HOLDS.discard(held)


def book(number: str, key: str) -> str:
    """Book a flight. For a repeated key, the airline returns the first ticket."""
    return TICKETS.setdefault(key, f"T-{number}")


def cancel_booking(ticket: str) -> None:
    """Undo ``book``."""
    for key in [key for key, issued in TICKETS.items() if issued == ticket]:
        del TICKETS[key]


# Branches. Each has a separate conversation and returns one value.


async def analyze_prices(ctx: BranchContext, flights: list[Flight]) -> str:
    """Ask the model about prices. A prompt continues the branch's conversation."""
    await ctx.sample(f"Which is the cheapest of {[flight.price for flight in flights]}?")
    return (await ctx.sample("Is it worth the money? One sentence.")).text


async def analyze_schedules(ctx: BranchContext, flights: list[Flight]) -> str:
    """Ask the model about schedules. ``messages=`` sends these messages, and stores none."""
    hours = {flight.number: flight.hours for flight in flights}
    return (await ctx.sample(messages=[user(f"Which is the most restful? {hours}")])).text


@tool
async def visa_rules(ctx: BranchContext, country: str) -> str:
    """Say which visa a traveller to a country needs."""
    await ctx.log("debug", f"looked up {country}")
    return f"No visa is needed for {country}."


async def research(ctx: BranchContext, destination: str) -> list[str]:
    """Ask the model for advice, and let it call the tools of this branch."""
    try:
        wish = await ctx.sample(
            f"What should a traveller to {destination} know?", tools=ctx.tools.values()
        )
    except CapabilityError:  # the client's model calls no tools: continue without
        return []
    calls = (ctx.call_tool(call.name, **call.arguments) for call in wish.tool_calls)
    return list(await ctx.gather(*calls))


# The tool.


@tool(
    elicits=[CONFIRM],
    requires=["sampling", "elicitation"],
    limits=Limits(max_depth=3, max_tokens=50_000, timeout=600),
)
async def book_flight(
    ctx: BranchContext, destination: str, *, budget: int = 500, pay_online: bool = False
) -> Booking:
    """Find a flight and book it."""
    await ctx.log("info", f"Looking for flights to {destination} on {ctx.now():%Y-%m-%d}")
    flights = await ctx.step(search_flights, destination, budget)
    if not flights:
        raise ToolError(f"No flight to {destination} costs {budget} or less.")
    rate = await ctx.race(ctx.step(exchange_rate, "near"), ctx.step(exchange_rate, "far"))

    prices, schedules, facts = await ctx.gather(  # three conversations, one round of questions
        ctx.branch(analyze_prices, flights),
        ctx.branch(
            analyze_schedules, flights, inherit_messages=False, max_tokens=4_000, timeout=300
        ),
        ctx.branch(research, destination, system_prompt="You are careful.", tools=[visa_rules]),
    )
    await ctx.notify("Flights analysed", progress=1, total=3)
    advice = await ctx.sample(
        f"Recommend one of {[flight.number for flight in flights]}. {prices} {schedules} {facts}",
        schema=Recommendation,
    )
    flight = next((f for f in flights if f.number == advice.parsed.number), flights[0])

    dollars = round(flight.price * rate)
    question = f"{flight.number} for {flight.price} EUR ({dollars} USD): {advice.parsed.reason}"
    answer = await ctx.elicit(CONFIRM, f"{question}\n\nBook it?", context=flight.model_dump())
    if not isinstance(answer, Accepted) or not answer.content.ok:
        return Booking(booked=False, summary="Cancelled")
    extras = await ctx.elicit(Extras, "Anything else?", key="extras")
    wishes = extras.content if isinstance(extras, Accepted) else Extras()
    await ctx.notify("Flight chosen", progress=2, total=3)

    await ctx.step(hold_seat, flight.number, wishes.seat, undo=release_seat)
    ticket = await ctx.step(book, flight.number, ctx.idempotency_key, undo=cancel_booking)
    receipt = str(ctx.uuid())
    if pay_online:
        paid = await ctx.elicit_url("Please pay.", f"https://pay.example.com/{receipt}")
        if not isinstance(paid, Accepted):  # the call fails, so the undos cancel booking and seat
            raise ToolError("The payment was refused, so nothing was booked.")
    await ctx.notify("Booked", progress=3, total=3)
    lounge = ctx.random.choice(LOUNGES)
    return Booking(
        booked=True,
        ticket=ticket,
        receipt=receipt,
        summary=f"{flight.number}, {wishes.seat}, {wishes.bags} bags, lounge {lounge}",
    )
