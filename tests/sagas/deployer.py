"""The tool of the saga proposal, with its own names and words: the fixture of the tests of sagas."""

from pydantic import BaseModel

from anabranch import Accepted, BranchContext, ToolError, tool


class Target(BaseModel):
    """Where to deploy to."""

    target: str


@tool
async def complex_tool(ctx: BranchContext, initial_arg: str) -> str:
    """Deploy, once a person has named the target and the model has confirmed."""
    await ctx.log("info", f"Deployment of {initial_arg} requested")
    answer = await ctx.elicit(
        Target, "Please provide the deployment target:", key="step-elicitation-A"
    )
    if not isinstance(answer, Accepted):
        return "Deployment cancelled."
    target = answer.content.target
    verdict = await ctx.sample(
        f"Is deploying to '{target}' safe right now?", max_tokens=100, key="step-sampling-B"
    )
    if verdict.text.strip().lower().startswith("no"):
        raise ToolError(f"Deployment to {target} refused: {verdict.text}")
    return f"Deployment to {target} initiated successfully based on confirmation."
