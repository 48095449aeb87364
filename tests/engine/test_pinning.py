"""Fingerprints of step arguments: equal content gives equal fingerprints, other content another one."""

import array
import copy
import datetime as dt
import decimal
import enum
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, RootModel, SecretStr

from anabranch._engine import pin
from tests.randomised import examples

DAY = dt.datetime(2026, 11, 1, 1, 30, tzinfo=dt.UTC)


def charge() -> None:
    """Stands for a step's function."""


class Order(BaseModel):
    model_config = ConfigDict(extra="allow")
    total: int


class Lines(RootModel[list[Order]]):
    pass


@dataclass
class Point:
    x: int
    seen: object = field(default=None, compare=False)


@attrs.define
class Seat:
    row: int


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    __hash__ = None  # type: ignore[assignment]


class Connection:
    """A type without any content."""


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Name(str):
    __slots__ = ()


PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "model": (lambda: Order(total=100), lambda: Order(total=200)),
    "extra field": (
        lambda: Order.model_validate({"total": 1, "a": 1}),
        lambda: Order.model_validate({"total": 1, "a": 2}),
    ),
    "root model": (lambda: Lines([Order(total=1)]), lambda: Lines([Order(total=2)])),
    "dataclass": (lambda: Point(1), lambda: Point(2)),
    "attrs class": (lambda: Seat(1), lambda: Seat(2)),
    "class with equality": (lambda: Named("a"), lambda: Named("b")),
    "enum": (lambda: {1: Colour.RED}, lambda: {1: Colour.BLUE}),
    "text of a class": (lambda: {1: Name("a")}, lambda: {1: Name("b")}),
    "decimal": (lambda: decimal.Decimal("1.10"), lambda: decimal.Decimal("1.20")),
    "moment": (lambda: DAY, lambda: DAY.replace(minute=31)),
    "hour that comes twice": (lambda: DAY, lambda: DAY.replace(fold=1)),
    "duration": (lambda: dt.timedelta(1), lambda: dt.timedelta(2)),
    "path": (lambda: Path("a"), lambda: Path("b")),
    "uuid": (lambda: uuid.UUID(int=1), lambda: uuid.UUID(int=2)),
    "address": (lambda: ip_address("127.0.0.1"), lambda: ip_address("127.0.0.2")),
    "bytes": (lambda: b"\xff\x00", lambda: b"\xff\x01"),
    "array": (lambda: array.array("i", [1, 2]), lambda: array.array("i", [1, 3])),
    "numpy array": (lambda: np.arange(4), lambda: np.arange(4).reshape(2, 2)),
    "pattern": (lambda: re.compile("a"), lambda: re.compile("a", re.IGNORECASE)),
    "secret": (lambda: SecretStr("a"), lambda: SecretStr("b")),
    "set": (lambda: {"a", "b"}, lambda: {"a", "c"}),
    "mapping with keys of all kinds": (lambda: {1: "a", "b": 2}, lambda: {1: "a", "b": 3}),
    "deep inside": (lambda: [{"a": (Point(1),)}], lambda: [{"a": (Point(2),)}]),
}


@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS)
def test_a_pin_depends_on_the_content(one: Callable[[], Any], other: Callable[[], Any]) -> None:
    assert pin(charge, [one()]) == pin(charge, [one()])
    assert pin(charge, [one()]) != pin(charge, [other()])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({1: 1, 2: 2}, {2: 2, 1: 1}),
        (Point(1, seen=1), Point(1, seen=2)),
        (Connection(), Connection()),
        ([charge], [test_a_pin_depends_on_the_content]),
        (np.array([Connection()]), np.array([Connection()])),
    ],
    ids=["order of keys", "field that equality ignores", "connection", "function", "objects"],
)
def test_a_pin_ignores_differences_outside_the_content(one: object, other: object) -> None:
    assert pin(charge, [one]) == pin(charge, [other])


def test_a_pin_distinguishes_types() -> None:
    values = [Connection(), Order(total=1), Point(1), decimal.Decimal(1), b"1", {1}, Path("1"), [1]]
    assert len({pin(charge, [value]) for value in values}) == len(values)


def test_a_value_that_contains_itself_is_pinned_by_its_type() -> None:
    one: list[Any] = [1]
    one.append(one)
    assert pin(charge, [one, 1]) == pin(charge, [copy.deepcopy(one), 1])
    assert pin(charge, [one, 1]) != pin(charge, [one, 2])


def test_a_pin_is_the_same_in_every_process() -> None:
    code = (
        "from pathlib import Path; from anabranch._engine import pin;"
        "print(pin(print, [{Path(c) for c in 'abcdef'}, {'x': {'q', 'r', 's'}}]))"
    )
    seeds = ({**os.environ, "PYTHONHASHSEED": seed} for seed in "123")
    pins = {subprocess.check_output([sys.executable, "-c", code], env=seed) for seed in seeds}
    assert len(pins) == 1


_LEAVES = st.one_of(
    st.integers(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.dates(),
    st.uuids(),
    st.builds(PurePosixPath, st.sampled_from("abc")),
    st.builds(Order, total=st.integers(0, 9)),
    st.sets(st.text(max_size=3), max_size=4),
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=3), inner, max_size=4),
        st.builds(Point, inner),
    ),
    max_leaves=8,
)


@examples(2000, gate=100)
@given(_VALUES, _VALUES)
def test_pins_are_equal_if_and_only_if_values_are(one: object, other: object) -> None:
    assert pin(charge, [one, {1}]) == pin(charge, [copy.deepcopy(one), {1}])
    assert (pin(charge, [one, {1}]) == pin(charge, [other, {1}])) == (one == other)


def test_a_partial_is_pinned_by_its_function_and_all_its_arguments() -> None:
    def pay(order: str, amount: int = 1) -> None: ...

    def refund(order: str, amount: int = 1) -> None: ...

    assert pin(partial(pay, amount=1), ["A1"]) == pin(partial(pay, amount=1), ["A1"])
    assert pin(partial(pay, "A1", 1), []) == pin(pay, ["A1", 1])
    others = [
        pin(partial(pay, amount=2), ["A1"]),
        pin(partial(pay, amount=1), ["B2"]),
        pin(partial(pay, "A1", 2), []),
        pin(partial(partial(pay, "A1"), amount=2), [1]),
        pin(partial(refund, amount=1), ["A1"]),
        pin(pay, ["A1"]),
    ]
    assert len({pin(partial(pay, amount=1), ["A1"]), *others}) == 1 + len(others)
