"""The ends of a run: with a value, with open asks, or where the record of a replay ends."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from anabranch._engine.journal import Ask
from anabranch._engine.quiescence import Quiet

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """The body has returned ``value``."""

    value: T


@dataclass(frozen=True, slots=True)
class Waiting:
    """The round is over; all open asks are here, in the order in which they were asked."""

    asks: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Stopped:
    """The record is used up; ``at`` has the ids of the steps that come next, open asks among them."""

    at: tuple[str, ...]


class Ended(NamedTuple):
    """How a round has ended: with which open asks, who asked what, and why then."""

    asks: tuple[Ask, ...]
    asked_by: dict[asyncio.Task[Any], list[str]]
    quiet: Quiet
