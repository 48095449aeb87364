"""A TARGET: tools on which clients of other projects are tested, next to the examples."""

from pathlib import Path

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, Elicitation, ToolError, tool


class Card(BaseModel):
    number: int


class Confirm(BaseModel):
    ok: bool


class Report(BaseModel):
    who: str
    cards: list[int]
    tip: str
    ticket: str


CONFIRM = Elicitation("confirm", Confirm)


def do(effects: str, what: str) -> str:
    """Make an effect: append one line to a file."""
    with Path(effects).open("a") as file:
        file.write(f"{what}\n")
    return what.upper()


async def pick(ctx: BranchContext, side: str) -> int:
    answer = await ctx.elicit(Card, f"{side}: which card?")
    return answer.content.number if isinstance(answer, Accepted) else 0


@tool(elicits=[CONFIRM])
async def journey(ctx: BranchContext, who: str, effects: str) -> Report:
    """Ask three questions at the same time, then a fourth, with an effect before and after."""

    def undo(done: str) -> None:
        do(effects, f"undo {done}")

    await ctx.log("info", f"{who} sets out")
    await ctx.notify("packing", progress=1, total=3)
    await ctx.step(do, effects, "pack", undo=undo)
    left, right, tip = await ctx.gather(
        ctx.branch(pick, "left"), ctx.branch(pick, "right"), ctx.sample("A tip?")
    )
    await ctx.notify("asking", progress=2, total=3)
    answer = await ctx.elicit(CONFIRM, f"Go, {who}?")
    if not isinstance(answer, Accepted):
        raise ToolError(f"{who} stays at home ({answer.action})")
    ticket = await ctx.step(do, effects, "book", undo=undo)
    await ctx.notify("done", progress=3, total=3)
    return Report(who=who, cards=[left, right], tip=tip.text, ticket=ticket)


@tool
async def interview(ctx: BranchContext, questions: int) -> list[bool]:
    """Ask questions in turn."""
    answers = [await ctx.elicit(Confirm, f"Question {number}?") for number in range(questions)]
    return [isinstance(answer, Accepted) and answer.content.ok for answer in answers]
