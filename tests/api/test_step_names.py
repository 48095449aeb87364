"""Names that an author gives to questions, steps and branches."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest
from pydantic import BaseModel, Field

from anabranch import BranchContext, Elicitation, tool
from anabranch.testing import MockClient, run_tool

UNFIT = ["", "x~2", "a/b", "a#1", "<lambda>"]


Operation: TypeAlias = Callable[[BranchContext, str], Awaitable[object]]


class Seat(BaseModel):
    row: int = Field(ge=1)


def name_a_sample(ctx: BranchContext, name: str) -> Awaitable[object]:
    return ctx.sample("?", key=name)


def name_a_question(ctx: BranchContext, name: str) -> Awaitable[object]:
    return ctx.elicit(Seat, "?", key=name)


def name_a_link(ctx: BranchContext, name: str) -> Awaitable[object]:
    return ctx.elicit_url("?", "https://example.org", key=name)


def name_a_step(ctx: BranchContext, name: str) -> Awaitable[object]:
    return ctx.step(int, name=name)


def name_a_branch(ctx: BranchContext, name: str) -> Awaitable[object]:
    async def inside(ctx: BranchContext) -> None: ...

    return ctx.branch(inside, name=name)


def name_a_marker(ctx: BranchContext, name: str) -> Awaitable[object]:
    return ctx.patched(name)


NAMED = [name_a_sample, name_a_question, name_a_link, name_a_step, name_a_branch, name_a_marker]


@pytest.mark.parametrize("name", UNFIT)
@pytest.mark.parametrize("operation", NAMED)
async def test_a_name_that_could_be_read_as_a_generated_one_is_refused_when_it_is_given(
    operation: Operation, name: str
) -> None:
    """The marks in generated step ids belong to the library, for every kind of name."""

    @tool
    async def body(ctx: BranchContext) -> str:
        with pytest.raises(ValueError, match="must not be empty or contain any of / ~ # < >"):
            operation(ctx, name)
        return "refused"

    client = MockClient()
    assert await run_tool(body, {}, client) == "refused"
    assert (client.sample_calls, client.elicit_calls) == ([], [])


@pytest.mark.parametrize("operation", NAMED)
async def test_a_plain_name_is_accepted(operation: Operation) -> None:
    @tool
    async def body(ctx: BranchContext) -> None:
        await operation(ctx, "seat 1.b-ä")

    await run_tool(body, {}, MockClient(samples=["x"], elicits=lambda _: {"row": 1}))


async def test_a_key_cannot_take_the_name_of_a_repeated_question() -> None:
    """A repeated question x has the id x~2, so no author's key may be x~2."""

    @tool
    async def body(ctx: BranchContext) -> str:
        await ctx.elicit(Seat, "first", key="x~2")
        await ctx.elicit(Seat, "second", key="x")
        return "done"

    client = MockClient(elicits=[{"row": 1}, {"row": -1}, {"row": 2}])
    with pytest.raises(ValueError, match="'x~2'"):
        await run_tool(body, {}, client)


@pytest.mark.parametrize("key", UNFIT)
def test_the_key_of_a_declared_question_follows_the_same_rule(key: str) -> None:
    """The declared key names the question's step unless the author gives another key."""
    with pytest.raises(ValueError, match="must not be empty or contain any of / ~ # < >"):
        Elicitation(key, Seat)
