"""A client that accepts everything, and a question that ends a round of a tool."""

from anabranch import BranchContext
from anabranch.testing import MockClient


async def next_round(ctx: BranchContext) -> None:
    """Ask a question, so that a replaying edge runs everything before the question again."""
    await ctx.elicit_url("go on", "https://example.org")


def willing() -> MockClient:
    return MockClient(samples=lambda _: "x", elicits=lambda _: {})
