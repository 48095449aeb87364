"""Scenes of the page: tools and a scripted model that bring the page into its states, for tests and
pictures.
"""

import asyncio
import struct
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import date
from typing import Any, Literal

from pydantic import BaseModel, Field

from anabranch import Accepted, BranchContext, Elicitation, tool
from anabranch.agents import AgentTool, BranchSelf, TurnLimits
from anabranch.chat import make_chat_app
from anabranch.models import ScriptedModel
from anabranch.stores import open_stores
from anabranch.tool import Tool
from tests.chat.web import serving

RESTED = "The **night train** arrives rested, right in the centre, and saves a hotel.\n\n- 9 h, one change\n- from 59 EUR"
EARLY = "The **early flight** is there before noon.\n\n- 3 h 10, direct\n- from 84 EUR"
VERDICT = "Option 1: it costs less, and nothing depends on the airport."
BOOKED = """Two seats are yours. Reserve the way back the same way:

```python
ticket = await ctx.step(reserve, "AB2", undo=release)
```

| Leg | From | To | Seats |
|---|---|---|---|
| 1 | Vienna | Lisbon | 2 |
"""


class Seats(BaseModel):
    """The form of ``book``."""

    seats: int = Field(title="Seats", ge=1, le=9)
    diet: Literal["none", "vegan", "fish"] = Field(default="none", title="Diet")
    day: date = Field(title="Day")
    window: bool = Field(default=True, title="Window seat")


SEATS = Elicitation("seats", Seats)


async def compare(ctx: BranchContext, what: str) -> str:
    return (await ctx.sample(f"Compare {what}.")).text


@tool(elicits=[SEATS])
async def book(ctx: BranchContext, to: str = "Lisbon") -> str:
    """Book a flight: compare fares and schedules, ask for the seats, reserve them."""
    await ctx.log("info", f"18 flights to {to}")
    await ctx.notify("Comparing fares and schedules", 1, 3)
    await ctx.gather(ctx.branch(compare, "fares"), ctx.branch(compare, "schedules"))
    await ctx.notify("Asking for the seats", 2, 3)
    await ctx.log("warning", "Few seats are left")
    answer = await ctx.elicit(SEATS, f"How many seats to **{to}**?")
    if not isinstance(answer, Accepted):
        return f"not booked: {answer.action}"
    return f"booked {answer.content.seats} to {to}"


async def board(ctx: BranchContext, gate: str) -> str:
    """Wait at the gate, in a branch, until the call is stopped."""
    await asyncio.Event().wait()
    return gate


class Departures:
    def __init__(self) -> None:
        @tool
        async def watch(ctx: BranchContext, gate: str = "B7") -> str:
            """Watch the departures, and say when it is time."""
            await ctx.log("info", f"Watching gate {gate}")
            await ctx.notify("Boarding", 64, 180)
            return await ctx.branch(board, gate)

        self.tool = watch


def script() -> ScriptedModel:
    fork = {
        "prompts": ["Argue for the night train", "Argue for the early flight"],
        "recombine": "llm_judge",
    }

    def say(when: str, text: str, *uses: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        tool_calls = [{"name": name, "arguments": arguments} for name, arguments in uses]
        return {"when": when, "repeat": True, "text": text, "tool_calls": tool_calls}

    return ScriptedModel(
        [
            say("branches completed", "The judge prefers the train, and so do I."),
            say("Judge", VERDICT),
            say("Option 1", VERDICT),
            say("two ways", "I will argue for both at once.", ("branch_self", fork)),
            say("night train", RESTED),
            say("early flight", EARLY),
            say("Compare", "Much the same."),
            say("booked", BOOKED),
            say("watch", "I will keep an eye on it.", ("watch", {})),
            say("flight", "I will book it.", ("book", {"to": "Lisbon"})),
            say("thanks", "You are welcome."),
            say("instead", "As you like."),
        ],
        "scripted",
    )


@asynccontextmanager
async def scenes() -> AsyncGenerator[str]:
    """Serve the scenes in this process, and yield the address."""
    calls, trees = open_stores("memory:")
    price = TurnLimits(price=lambda _, used: used.total_tokens / 100_000)
    tools: list[Tool[Any] | AgentTool] = [book, Departures().tool, BranchSelf()]
    app = make_chat_app(trees, script(), tools, calls=calls, limits=price)
    async with serving(app) as address:
        yield f"{address}/"


def picture() -> bytes:
    """Return a PNG of four by four pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        checked = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + checked

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress((b"\0" + b"\x20\x70\x70" * 4) * 4))
    return b"\x89PNG\r\n\x1a\n" + head + data + chunk(b"IEND", b"")
