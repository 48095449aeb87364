"""A TARGET that asks for a form with constraints, long choices, and a rule outside of the schema."""

from typing import Literal

from pydantic import BaseModel, Field, field_validator

from anabranch import BranchContext, Elicitation, tool

TOWNS = Literal[
    "Aachen", "Bonn", "Celle", "Dresden", "Essen", "Fulda", "Graz", "Hamm", "Innsbruck", "Jena",
    "Kiel", "Linz", "Mainz", "Neuss", "Olten", "Passau", "Rostock", "Steyr", "Trier", "Ulm",
]  # fmt: skip


class Trip(BaseModel):
    name: str = Field(min_length=2)
    nights: int = Field(ge=1, le=14)
    town: TOWNS

    @field_validator("nights")
    @classmethod
    def _in_pairs(cls, nights: int) -> int:
        if nights % 2:
            raise ValueError("rooms are let for an even number of nights")
        return nights


TRIP = Elicitation("trip", Trip)


@tool(elicits=[TRIP])
async def plan(ctx: BranchContext) -> dict[str, object]:
    answer = await ctx.elicit(TRIP, "Where to?")
    return answer.content.model_dump() if answer.action == "accept" else {"action": answer.action}
