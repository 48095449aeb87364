"""``ctx.step``: a step runs once, is recorded, can be undone, and has an idempotency key for
services.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel, Field

from anabranch import BranchContext, StepFailed, tool
from anabranch.testing import SequentialIds, run_tool
from tests.api.replaying import next_round, willing


class Ticket(BaseModel):
    seat: int


async def test_a_step_that_raises_is_a_failed_step_with_the_original_text(
    replay: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def explode() -> None:
        raise ConnectionError("password=hunter2")

    @tool
    async def outer(ctx: BranchContext) -> str:
        with pytest.raises(StepFailed) as first:
            await ctx.step(explode)
        await next_round(ctx)
        assert "hunter2" not in str(first.value)
        return f"{first.value.step_id} {first.value.error} {first.value.detail}"

    said = await run_tool(outer, {}, willing(), replay=replay)
    assert said == "outer/explode.1 ConnectionError password=hunter2"
    assert "hunter2" in caplog.text


class Unhashable:  # noqa: PLW1641 - the point
    """A callable that is no function and cannot be a key of a dict."""

    def __eq__(self, other: object) -> bool:  # without __hash__, which makes it unhashable
        return self is other

    def __call__(self, n: int) -> Ticket:
        return Ticket(seat=n)


class OddlyNamed:
    __name__ = 17

    async def __call__(self, n: int) -> Ticket:
        return Ticket(seat=n)


class Office:
    def book(self, n: int) -> Ticket:
        return Ticket(seat=n)

    @classmethod
    async def at_random(cls, n: int) -> Ticket:
        return Ticket(seat=n)


def two(a: int, b: int) -> Ticket:
    return Ticket(seat=a + b)


async def async_two(a: int, b: int) -> Ticket:
    return Ticket(seat=a + b)


async def plain_data(n: int) -> dict[str, int]:
    return {"seat": n}


def returns_awaitable(n: int) -> Awaitable[dict[str, int]]:
    return plain_data(n)


ODD: dict[str, Callable[[int], object]] = {
    "unhashable": Unhashable(),
    "oddly named": OddlyNamed(),
    "method": Office().book,
    "class method": Office.at_random,
    "partial": functools.partial(two, 0),
    "async partial": functools.partial(async_two, b=0),
    "nested partial": functools.partial(functools.partial(two), 0),
    "lambda": lambda n: two(n, 0).model_dump(),
    "lambda that makes a coroutine": lambda n: plain_data(n),  # noqa: PLW0108 - the point
    "function that returns an awaitable": returns_awaitable,
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_anything_that_can_be_called_can_be_a_step(
    odd: Callable[[int], object], replay: bool
) -> None:
    """An author may write a callable in any form."""

    @tool
    async def outer(ctx: BranchContext) -> int:
        value: Any = await ctx.step(odd, 3)
        await next_round(ctx)
        return Ticket.model_validate(value).seat

    assert await run_tool(outer, {}, willing(), replay=replay) == 3


class Aliased(BaseModel):
    """A model whose fields have other names on the wire, in one direction or both."""

    card_number: int = Field(alias="cardNumber")
    one_way: int = Field(default=0, validation_alias="in")
    other_way: int = Field(default=0, serialization_alias="out")


def aliased() -> Aliased:
    return Aliased.model_validate({"cardNumber": 3, "in": 4, "other_way": 5})


async def test_a_step_value_with_aliased_fields_survives_the_journal(replay: bool) -> None:
    """The journal keeps field names, not wire names: otherwise a default would replace the value."""

    async def inner(sub: BranchContext) -> Aliased:
        return aliased()

    @tool
    async def outer(ctx: BranchContext) -> list[Aliased]:
        values = [await ctx.step(aliased), await ctx.branch(inner)]
        await next_round(ctx)
        return values

    assert await run_tool(outer, {}, willing(), replay=replay) == [aliased(), aliased()]


async def test_each_step_has_its_own_idempotency_key_in_threads_and_the_loop(replay: bool) -> None:
    used: list[str] = []

    @tool
    async def outer(ctx: BranchContext) -> list[str]:
        def in_thread() -> None:
            used.append(ctx.idempotency_key)

        async def on_loop() -> None:
            await asyncio.sleep(0)
            used.append(ctx.idempotency_key)

        async def inner(sub: BranchContext) -> None:
            await sub.step(in_thread)

        expected: list[str] = []
        for function in (in_thread, on_loop, functools.partial(in_thread)):
            expected.append(ctx.idempotency_key)
            await ctx.step(function)
            await next_round(ctx)
        await ctx.branch(inner)
        await ctx.gather(ctx.step(in_thread, name="x"), ctx.step(on_loop, name="y"))
        return expected

    expected = await run_tool(outer, {}, willing(), replay=replay, ids=SequentialIds())
    assert used[:3] == expected
    assert len(set(used)) == len(used) == 6
    assert all(key.startswith("call_1:outer/") for key in used)


async def test_idempotency_keys_do_not_depend_on_replays(replay: bool) -> None:
    used: list[str] = []

    @tool
    async def outer(ctx: BranchContext, asks_first: bool) -> None:
        if asks_first:
            await next_round(ctx)
        await ctx.step(str, "a")
        await next_round(ctx)
        used.append(ctx.idempotency_key)
        await next_round(ctx)

    for asks_first in (True, False):
        params = {"asks_first": asks_first}
        await run_tool(outer, params, willing(), replay=replay, ids=SequentialIds())
    assert set(used) == {"call_1:outer/step.2"}


async def test_a_step_refuses_a_value_in_place_of_its_function(replay: bool) -> None:
    async def reserve() -> str:
        return "12A"

    @tool
    async def book(ctx: BranchContext) -> str:
        return await ctx.step(reserve())  # type: ignore[call-overload, no-any-return]

    with pytest.raises(TypeError, match=r"got coroutine\. Write ctx\.step\(reserve, seat\)"):
        await run_tool(book, {}, replay=replay)
