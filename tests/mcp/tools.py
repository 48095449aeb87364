"""The tool that tests call over every transport, in this process and in another.

The tool uses every feature, and writes its effects to a file, so that a test can count them.
"""

from pathlib import Path

from pydantic import BaseModel, Field

from anabranch import Accepted, BranchContext, Elicitation, ToolError, tool
from anabranch.tool import Tool
from tests.mcp.harness import Answers, accept, echo


class Card(BaseModel):
    number: int = Field(ge=1, le=9)


class Confirm(BaseModel):
    ok: bool


class Report(BaseModel):
    """The result of a journey."""

    who: str
    cards: list[int]
    tip: str
    scouted: list[str]
    ticket: str


CONFIRM = Elicitation("confirm", Confirm)


def do(effects: Path, what: str) -> str:
    """Make an effect: append one line to a file."""
    with effects.open("a") as file:
        file.write(f"{what}\n")
    return what.upper()


def journey(effects: Path) -> Tool[Report]:
    def undo(done: str) -> None:
        do(effects, f"undo {done}")

    async def pick(ctx: BranchContext, side: str) -> int:
        answer = await ctx.elicit(Card, f"{side}: which card?")
        return answer.content.number if isinstance(answer, Accepted) else 0

    async def scout(ctx: BranchContext, who: str) -> list[str]:
        near = await ctx.sample(f"What is near {who}?")
        await ctx.step(do, effects, "scout")
        far = await ctx.sample("And far?")
        await ctx.log("debug", f"{len(ctx.messages)} messages at depth {ctx.depth}")
        return [near.text, far.text]

    @tool(name="journey", elicits=[CONFIRM])
    async def body(ctx: BranchContext, who: str, fail: bool = False) -> Report:
        """Travel."""
        await ctx.log("info", f"{who} sets out")
        await ctx.notify("packing")
        await ctx.step(do, effects, "pack", undo=undo)
        left, right, tip = await ctx.gather(
            ctx.branch(pick, "left"), ctx.branch(pick, "right"), ctx.sample("A tip?")
        )
        await ctx.notify("scouting")
        scouted = await ctx.branch(scout, who, inherit_messages=False)
        answer = await ctx.elicit(CONFIRM, f"Go, {who}?")
        if not isinstance(answer, Accepted) or not answer.content.ok:
            raise ToolError(f"{who} stays at home ({answer.action})")
        ticket = await ctx.step(do, effects, "book", undo=undo)
        await ctx.notify("done")
        if fail:
            raise ToolError("no seat left")
        return Report(who=who, cards=[left, right], tip=tip.text, scouted=scouted, ticket=ticket)

    return body


def traveller() -> Answers:
    """Return answers: 3 on the left; 30, then 4 on the right; and consent."""

    def answer(params: object) -> object:
        message: str = getattr(params, "message", "")
        if message.startswith("left"):
            return accept(number=3)
        if message.startswith("right"):
            return accept(number=4 if "did not fit" in message else 30)
        return accept(ok=True)

    return Answers(answer, echo)


ANSWERED = Report(
    who="Ida",
    cards=[3, 4],
    tip="<A tip?>",
    scouted=["<What is near Ida?>", "<And far?>"],
    ticket="BOOK",
)
