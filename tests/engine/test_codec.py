"""Values that a journal can carry between rounds, and errors that name the values it cannot."""

import asyncio
import datetime as dt
import enum
import functools
import gc
import math
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator

from anabranch._engine import Codec, codec_of, repeatable
from anabranch._engine.codec import PLAIN, reference_to, resolve, same
from anabranch.errors import SerializationError
from tests.engine.json_values import JSON
from tests.randomised import examples


class Colour(enum.Enum):
    RED = 1


class Flight(BaseModel):
    price: Decimal
    day: dt.date


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: dt.date
    colour: Colour
    seats: tuple[int, ...]


@dataclass
class Point:
    x: int
    y: int


class Shot(BaseModel):
    picture: bytes
    more: dict[str, bytes]


class Pair(NamedTuple):
    left: int
    right: str


class OneWay(BaseModel):
    """A value whose JSON does not read back as the same value."""

    number: int

    @field_validator("number")
    @classmethod
    def _grows(cls, number: int) -> int:
        if number > 1:
            raise ValueError("too big")
        return number + 1


def through(codec: Codec, value: Any) -> Any:
    return codec.decode("t/step.1", codec.encode("t/step.1", value))


@examples(100, gate=40)
@given(JSON.filter(lambda value: "inf" not in repr(value)))
def test_plain_json_comes_back_unchanged(value: Any) -> None:
    assert through(PLAIN, value) == value


def test_a_value_shares_nothing_mutable_with_its_record() -> None:
    original = {"list": [1]}
    record = PLAIN.encode("t/step.1", original)
    read = PLAIN.decode("t/step.1", record)
    original["list"].append(2)
    read["list"].append(3)
    assert record == {"list": [1]}


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Flight, Flight(price=Decimal("1.10"), day=dt.date(2026, 11, 21))),
        (Strict, Strict(day=dt.date(2026, 11, 21), colour=Colour.RED, seats=(1, 2))),
        (Point, Point(1, 2)),
        (Pair, Pair(1, "a")),
        (list[Point], [Point(1, 2)]),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (dict[int, str], {1: "a"}),
        (Colour, Colour.RED),
        (bytes, b"\x89PNG\xff"),
        (list[Shot | bytes], [Shot(picture=b"\xff", more={"a": b"\xfe"}), b"\xfd"]),
        (dt.timedelta, dt.timedelta(hours=1)),
        (Flight | None, None),
    ],
    ids=str,
)
def test_a_described_value_comes_back_with_its_type(annotation: Any, value: Any) -> None:
    read = through(Codec(TypeAdapter(annotation)), value)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        pytest.param(object(), "object", id="object"),
        pytest.param({1, 2}, "set", id="set"),
        pytest.param(Point(1, 2), "Point.*needs the return annotation Point", id="dataclass"),
        pytest.param([lambda: None], "function", id="function in a list"),
        pytest.param({"deep": [Path()]}, "PosixPath", id="path deep inside"),
        pytest.param(b"bytes", "bytes", id="bytes"),
        pytest.param({1: "a"}, r"dict.*its key 1 is not a string", id="number as key"),
        pytest.param(math.nan, r"float.*nan is not a JSON number", id="nan"),
        pytest.param([math.inf], r"float.*inf is not a JSON number", id="infinity"),
        pytest.param(10**5000, r"int.*so many digits", id="a very long number"),
    ],
)
def test_a_value_that_is_not_json_is_refused_with_its_step_and_type(value: Any, named: str) -> None:
    with pytest.raises(SerializationError, match=rf"'t/step.1' is of type .*{named}"):
        PLAIN.encode("t/step.1", value)


def test_a_value_nested_too_deep_to_be_written_is_refused() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(SerializationError, match=r"list.*nested too deep"):
        PLAIN.encode("t/step.1", nested)


def test_a_value_that_does_not_fit_its_annotation_is_refused() -> None:
    with pytest.raises(SerializationError, match="of type str"):
        Codec(TypeAdapter(int)).encode("t/step.1", "three")


def test_an_annotation_that_does_not_accept_its_own_json_is_named() -> None:
    codec = Codec(TypeAdapter(OneWay))
    with pytest.raises(SerializationError, match=r"JSON does not fit the return annotation OneWay"):
        through(codec, OneWay(number=1))


def test_a_value_that_its_annotation_rejects_is_named() -> None:
    with pytest.raises(
        SerializationError, match=r"NoneType.*does not fit the return annotation str"
    ):
        Codec(TypeAdapter(str)).record("t/step.1", None)


class Card(BaseModel):
    sum: int


class Cash(BaseModel):
    sum: int


class Optional(BaseModel):
    card: Card | None = None


class Lossy(BaseModel):
    sum: int
    hidden: str = Field(default="", exclude=True)


class CardOf(Card):
    number: str


@pytest.mark.parametrize(
    ("annotation", "value", "reason"),
    [
        (Card, CardOf(sum=1, number="4242"), "returns Card for the CardOf"),
        (list[Card], [Card(sum=1), CardOf(sum=1, number="4242")], "returns Card for the CardOf at '1'"),
        (Card | Cash, Cash(sum=1), "returns Card for the Cash"),
        (dt.date, dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), "not fit the return annotation date"),
        (Lossy, Lossy(sum=1, hidden="x"), "returns another str at 'hidden'"),
        (dict[str, Any], {"a": [{"on": dt.date(2026, 1, 1)}]}, "returns str for the date at 'a.0.on'"),
        (list[dict[str, Any]], [{"a": 1}, {"of": Decimal(1)}], "returns str for the Decimal at '1.of'"),
        (Any, Optional(card=CardOf(sum=1, number="4")), "returns dict for the Optional"),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_is_refused_when_it_reads_back_as_another(
    annotation: Any, value: Any, reason: str
) -> None:
    with pytest.raises(SerializationError, match=rf"'t/step\.1'.*{reason}"):
        Codec(TypeAdapter(annotation)).record("t/step.1", value)


def test_a_value_without_equality_is_recorded_when_its_fields_are_equal() -> None:
    @dataclass(eq=False)
    class Seat:
        row: int

    assert Codec(TypeAdapter(Seat)).record("t/step.1", Seat(4)) == {"row": 4}

    class Grid(list[int]):
        """A type whose ``==`` returns no single truth value, like an array."""

        def __eq__(self, other: object) -> bool:
            raise ValueError("ambiguous")

        __hash__ = None

    assert same(Grid([1]), Grid([1]))
    assert Codec(TypeAdapter(Any)).record("t/step.1", [1]) == [1]


def test_numbers_of_an_annotated_type_must_be_json() -> None:
    with pytest.raises(SerializationError, match="inf is not a JSON number"):
        Codec(TypeAdapter(float)).encode("t/step.1", math.inf)


# -- which codec a function has --------------------------------------------------------------


def annotated() -> Flight:
    raise NotImplementedError


def anything() -> Any:
    raise NotImplementedError


def unresolvable() -> None:
    raise NotImplementedError


unresolvable.__annotations__["return"] = "Missing"


def unserialisable() -> asyncio.Event:
    raise NotImplementedError


def with_metadata() -> Annotated[int, ["unhashable"]]:
    raise NotImplementedError


async def asynchronous(day: dt.date) -> Flight:
    raise NotImplementedError


class Desk:  # noqa: PLW1641 - that it cannot be hashed is its point
    """A callable object that is not hashable."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self) -> Flight:
        raise NotImplementedError

    def method(self) -> Flight:
        raise NotImplementedError


FLIGHT = Flight(price=Decimal(1), day=dt.date(2026, 1, 1))


@pytest.mark.parametrize(
    "function",
    [
        annotated,
        asynchronous,
        functools.partial(asynchronous, dt.date(2026, 1, 1)),
        functools.partial(functools.partial(annotated)),
        Desk(),
        Desk().method,
    ],
    ids=["function", "coroutine function", "partial", "nested partial", "object", "method"],
)
def test_the_return_annotation_is_found_through_any_wrapper(function: Callable[..., Any]) -> None:
    assert through(codec_of(function), FLIGHT) == FLIGHT


@pytest.mark.parametrize(
    "function",
    [anything, unresolvable, unserialisable, len, lambda: 1],
    ids=["Any", "unresolvable", "unserialisable", "built-in", "lambda"],
)
def test_without_an_annotation_that_pydantic_can_use_a_value_must_be_json(
    function: Callable[..., Any],
) -> None:
    with pytest.raises(SerializationError):
        codec_of(function).encode("t/step.1", FLIGHT)
    assert through(codec_of(function), [1]) == [1]


def test_an_unhashable_annotation_is_used() -> None:
    assert through(codec_of(with_metadata), 3) == 3


def make_local(holding: object) -> Callable[[], Flight]:
    def local() -> Flight:
        assert holding
        return FLIGHT

    return local


def test_the_codec_of_a_recreated_function_is_created_once() -> None:
    assert codec_of(make_local(1)) is codec_of(make_local(2))


def test_the_codec_cache_does_not_keep_a_recreated_function_alive() -> None:
    class Held:
        pass

    held = Held()
    seen = weakref.ref(held)
    codec_of(make_local(held))
    del held
    gc.collect()
    assert seen() is None


def test_a_local_function_whose_annotation_changes_has_another_codec() -> None:
    def make(returns: Any) -> Callable[[], Any]:
        def local() -> Any:
            raise NotImplementedError

        local.__annotations__["return"] = returns
        return local

    assert through(codec_of(make(int)), 1) == 1
    assert through(codec_of(make(Flight)), FLIGHT) == FLIGHT


# -- functions by name -----------------------------------------------------------------------


class Holder:
    @staticmethod
    def inside() -> None:
        """A function inside a class."""

    def bound(self) -> None:
        """A method of an instance."""


def test_a_function_found_in_its_module_can_be_referenced() -> None:
    assert reference_to(annotated) == f"{__name__}:annotated"
    assert resolve(f"{__name__}:annotated") is annotated
    assert resolve(reference_to(Holder.inside) or "") is Holder.inside


@pytest.mark.parametrize(
    "function",
    [lambda: None, make_local(0), Holder().bound, functools.partial(annotated), Desk()],
    ids=["lambda", "closure", "bound method", "partial", "object"],
)
def test_an_effect_not_found_by_name_has_no_undo_in_a_race(function: Callable[..., Any]) -> None:
    assert reference_to(function) is None


def test_a_replaced_name_cannot_be_referenced() -> None:
    def replaced() -> None:
        """A function with the name of another."""

    replaced.__qualname__ = "no_longer_there"
    assert reference_to(replaced) is None


@pytest.mark.parametrize("reference", ["", "no.such.module:f", f"{__name__}:missing", "math:pi"])
def test_a_dangling_reference_raises_a_lookup_error(reference: str) -> None:
    with pytest.raises(LookupError):
        resolve(reference)


def test_an_iterable_is_read_as_a_list() -> None:
    adapter = TypeAdapter(dict[str, Iterable[int]])
    read = repeatable(adapter.core_schema, adapter.validator).validate_python({"rows": (1, 2)})
    assert [*read["rows"]] == [*read["rows"]] == [1, 2]
    plain = TypeAdapter(list[int])
    assert repeatable(plain.core_schema, plain.validator) is plain.validator
