"""A call waits for its user since the oldest of its open questions."""

from typing import Any

import mcp_types as types
from mcp.types import InputRequiredResult
from pydantic import BaseModel

from anabranch import BranchContext, tool
from anabranch._engine import Finished
from tests.durable.harness import Desk
from tests.durable.stores import Modelled

LATER = 10.0
YES = types.ElicitResult(action="accept", content={"row": 1})


class Seat(BaseModel):
    row: int


@tool
async def plan(ctx: BranchContext) -> str:
    await ctx.gather(ctx.elicit(Seat, "Row?"), ctx.elicit(Seat, "And hers?"))
    await ctx.elicit(Seat, "And his?")
    return "planned"


def always(step_id: str, request: Any) -> BaseModel:
    del step_id, request
    return YES


async def test_a_question_keeps_its_age_until_its_answer() -> None:
    desk, store = Desk(plan, always), Modelled()
    service, since = desk.service(store), list[float | None]()

    async def play(reply: InputRequiredResult | None) -> InputRequiredResult | None:
        """Answer the first question of a reply, and record since when the oldest one is open."""
        state = None if reply is None else reply.request_state
        asked = [] if reply is None else list(reply.input_requests or ())
        ended = await desk.request(service, state, dict.fromkeys(asked[:1], YES))
        since.append((await store.open_calls())[2])
        desk.clock.advance(LATER)
        return None if isinstance(ended, Finished) else ended

    begun, reply = desk.clock.now(), await play(None)
    while reply is not None:
        reply = await play(reply)
    assert since == [begun, begun, begun + 2 * LATER, None]
