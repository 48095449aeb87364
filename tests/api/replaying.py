"""A client that says yes to everything, and a question that divides a tool into rounds."""

from anabranch import BranchContext
from anabranch.testing import MockClient


async def next_round(ctx: BranchContext) -> None:
    """Make sure that everything before is replayed, where there is replaying."""
    await ctx.elicit_url("go on", "https://example.org")


def willing() -> MockClient:
    return MockClient(samples=lambda _: "x", elicits=lambda _: {})
