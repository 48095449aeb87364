"""A deployment: asks the user for the target and the model for its judgement, then rolls out once.

Both questions have a key, by which a client or a file of answers recognises each question.
"""

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, ToolError, tool


class Target(BaseModel):
    """The target of the deployment."""

    target: str


def roll_out(version: str, target: str) -> str:
    """Call your deployment system here."""
    return f"Version {version} runs on {target}."


@tool
async def deploy(ctx: BranchContext, version: str) -> str:
    """Deploy a version, once the user has named the target and the model has confirmed."""
    await ctx.log("info", f"Deployment of {version} requested")
    answer = await ctx.elicit(Target, "Where to?", key="target")
    if not isinstance(answer, Accepted):
        return "Not deployed."
    target = answer.content.target
    verdict = await ctx.sample(
        f"Is deploying to {target!r} safe right now?", max_tokens=100, key="safety"
    )
    if verdict.text.strip().lower().startswith("no"):
        raise ToolError(f"Not deployed to {target}: {verdict.text}")
    return await ctx.step(roll_out, version, target)
