"""A TARGET whose tools ask questions with content that only their caller may know."""

from pydantic import BaseModel

from anabranch import BranchContext, tool

QUESTIONS = 12
"""More questions than one request may ask."""


class Reply(BaseModel):
    text: str


@tool
async def survey(ctx: BranchContext, about: str, *, forms: bool = True) -> str:
    """Ask several questions about something; ``forms`` is an argument for the client."""
    await ctx.step(about.upper)
    asked = QUESTIONS if forms else 1
    replies = [await ctx.elicit(Reply, f"What of {about}, {n}?") for n in range(asked)]
    return f"{about}: {len(replies)} {replies[-1].action}"
