"""Likely misuses of ``ctx``: each raises an error of one sentence that names the remedy."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import fastmcp
import pytest
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel, PydanticUserError

from anabranch import BranchContext, tool
from anabranch.testing import MockClient, run_tool


class Approval(BaseModel):
    approve: bool = True


def charge(order: str, amount: int = 1) -> list[Any]:
    return [order, amount]


async def inside(ctx: BranchContext, order: str, amount: int = 1) -> list[Any]:
    return [order, amount]


@tool
async def other(ctx: BranchContext, order: str) -> str:
    return order


FAULTS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "elicit a list of choices": (
        lambda ctx: ctx.elicit(["a", "b"], "Which?"),
        TypeError,
        r"needs a pydantic model class, got \['a', 'b'\]\. Write ctx\.elicit\(Model, message\)",
    ),
    "elicit an object of the model": (
        lambda ctx: ctx.elicit(Approval(), "Pay?"),
        TypeError,
        r"needs a pydantic model class, got Approval\(approve=True\)",
    ),
    "elicit without a text": (
        lambda ctx: ctx.elicit(Approval, None),
        TypeError,
        r"ctx\.elicit takes a text as message, got None\.",
    ),
    "branch of a plain function": (
        lambda ctx: ctx.branch(lambda inner: 3),
        TypeError,
        r"ctx\.branch takes an async function, got a function that returned int\.",
    ),
    "call_tool with a function": (
        lambda ctx: ctx.call_tool(inside, order="A1"),
        TypeError,
        r"ctx\.call_tool takes a tool, got the function 'inside'\. Decorate .* @tool",
    ),
    "gather a list": (
        lambda ctx: ctx.gather([]),
        TypeError,
        r"ctx\.gather takes operations, got list\. Write ctx\.gather\(\*operations\)\.",
    ),
    "race a list": (
        lambda ctx: ctx.race([]),
        TypeError,
        r"ctx\.race takes operations, got list\. Write ctx\.race\(\*operations\)\.",
    ),
    "sleep a duration": (
        lambda ctx: ctx.sleep(timedelta(seconds=1)),
        TypeError,
        r"ctx\.sleep takes a number of seconds, got timedelta\.",
    ),
    "progress as in other libraries": (
        lambda ctx: ctx.report_progress(1, 2),
        AttributeError,
        r"has no attribute 'report_progress'\. Write ctx\.notify\(message, progress, total\)\.",
    ),
    "a log as in other libraries": (
        lambda ctx: ctx.info("Paid."),
        AttributeError,
        r"has no attribute 'info'\. Write ctx\.log\(\"info\", message\)\.",
    ),
    "a name that nobody has": (
        lambda ctx: ctx.nothing,
        AttributeError,
        r"'BranchContext' object has no attribute 'nothing'$",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
async def test_a_wrong_use_of_the_context_names_its_remedy(what: str) -> None:
    use, kind, words = FAULTS[what]

    @tool
    async def misused(ctx: BranchContext) -> None:
        await use(ctx)

    with pytest.raises(kind, match=words):
        await run_tool(misused, {}, MockClient(elicits=[{}]))


def on_sdk(function: Any) -> object:
    return MCPServer("shop").tool()(function)


def on_fastmcp(function: Any) -> object:
    return fastmcp.FastMCP("shop").tool(function)


def added_to_sdk(function: Any) -> object:
    MCPServer("shop").add_tool(function)
    return None


def added_to_fastmcp(function: Any) -> object:
    return fastmcp.FastMCP("shop").add_tool(function)


@pytest.mark.parametrize(
    ("add", "given"),
    [
        (on_sdk, inside),
        (on_sdk, other),
        (added_to_sdk, other),
        (on_fastmcp, inside),
        (added_to_fastmcp, inside),
        (added_to_fastmcp, other),
    ],
)
def test_a_host_that_decorates_a_function_of_ours_names_the_remedy(
    add: Callable[[Any], object], given: Any
) -> None:
    with pytest.raises(
        PydanticUserError, match=r"no caller gives a BranchContext\. .*install\(server, "
    ):
        add(given)
