from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool


class Approval(BaseModel):
    approve: bool


def pay_out(order: str, amount: float) -> str:
    return f"Paid {amount:.2f} for order {order}."


@tool
async def refund(ctx: BranchContext, order: str, amount: float) -> str:
    """Refund an order after the user has approved it."""
    answer = await ctx.elicit(Approval, f"Refund {amount:.2f} for order {order}?")
    if not isinstance(answer, Accepted) or not answer.content.approve:
        return "Not refunded."
    return await ctx.step(pay_out, order, amount)  # recorded: the money is paid once
