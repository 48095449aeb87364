"""The form and the tool that the servers of most tests use."""

from typing import Any, Final

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool

YES: Final[dict[str, Any]] = {"action": "accept", "content": {"ok": True}}


class Ok(BaseModel):
    """A form of one field."""

    ok: bool


@tool
async def ask(ctx: BranchContext, what: str = "it") -> str:
    """Ask whether to do it."""
    answer = await ctx.elicit(Ok, f"Do {what}?")
    return answer.action if isinstance(answer, Accepted) else "no"
