"""Defaults that a factory creates: each round has the value of the first round."""

import itertools
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from anabranch._engine import Branch, Codec, drawn_codec
from anabranch.errors import SerializationError
from tests.engine.harness import ask, first_round, here, hot, rounds

NUMBERS = itertools.count()


class Item(BaseModel):
    name: str = "chair"
    tags: list[str] = Field(default_factory=list)


class Order(BaseModel):
    item: Item = Field(default_factory=Item)
    number: int = Field(default_factory=lambda: next(NUMBERS))


@pytest.mark.parametrize(
    ("type_", "draws"),
    [(Item, False), (Order, True), (list[Order], True), (dict[str, Item], False)],
)
def test_only_a_type_with_a_default_that_may_differ_has_a_codec(type_: Any, draws: bool) -> None:
    assert (drawn_codec(TypeAdapter(type_)) is not None) == draws


def first(codec: Codec, value: object, again: object = None) -> object:
    call, scope = here()
    return call.operations.first(scope.branch, "order", codec, value, lambda: again)


async def test_each_round_has_the_value_of_the_first_round() -> None:
    codec = drawn_codec(TypeAdapter(Order))
    assert codec is not None

    async def body(_: Branch) -> tuple[Order, Order]:
        before = Order()
        kept = first(codec, before)
        await ask("one")
        assert isinstance(kept, Order)
        return before, kept

    made, kept = (await rounds(body)).value
    assert kept.number == made.number - 1


async def test_a_value_that_cannot_be_recorded_and_is_steady_stays_unchanged() -> None:
    opaque = object()

    async def body(_: Branch) -> bool:
        return first(Codec(None), opaque, opaque) is opaque

    assert await hot(body)


async def test_a_value_that_cannot_be_recorded_and_differs_is_refused() -> None:
    async def body(_: Branch) -> None:
        first(Codec(None), Decimal(1), Decimal(2))

    with pytest.raises(SerializationError, match="a default differs in each round"):
        await hot(body)


async def test_a_body_records_no_default_after_the_end_of_its_round() -> None:
    codec = drawn_codec(TypeAdapter(Order))
    assert codec is not None
    unchanged: list[bool] = []

    async def body(_: Branch) -> None:
        try:
            await ask("one")
        finally:
            order = Order()
            unchanged.append(first(codec, order) is order)

    await first_round(body)
    assert unchanged == [True]
