"""Limits the requests and runs of each caller per minute, and the caller's streams of events."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException
from starlette.requests import Request

from anabranch._budget import FullShareError, Shares, by_address

CALLER = "anabranch.caller"
"""The key of the caller in the scope of a request."""

MINUTE = 60.0
CALLERS_HELD = 10_000
"""The most callers whose buckets are kept; beyond them, the oldest are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Maximum requests and runs per minute of one caller: a user, or else a network address.

    Attributes:
        requests: requests of all kinds, refused ones included.
        runs: messages and answers, each of which starts work of the model or a tool.

    Raises:
        ValueError: if a number is not positive.
    """

    requests: int = 600
    runs: int = 60

    def __post_init__(self) -> None:
        for name in ("requests", "runs"):
            most: object = getattr(self, name)
            if type(most) is not int or most < 1:
                raise ValueError(f"{name} must be a positive number, got {most!r}")


class Rates:
    def __init__(
        self, limits: RateLimits | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.requests: Buckets = Buckets(None if limits is None else limits.requests, now)
        self.runs: Buckets = Buckets(None if limits is None else limits.runs, now)


def counted_as(request: Request, principal: str | None) -> str:
    if principal is not None:
        return f"principal {principal}"
    return by_address(request.client.host if request.client is not None else "")


@dataclass(slots=True)
class _Bucket:
    level: float
    filled: float


@dataclass(slots=True)
class Buckets:
    """A bucket of ``most`` tokens for each caller, which each request empties and a minute fills."""

    most: int | None
    now: Callable[[], float]
    held: dict[str, _Bucket] = field(default_factory=dict[str, _Bucket])

    def take(self, caller: str) -> int:
        if self.most is None:
            return 0
        now, rate = self.now(), self.most / MINUTE
        bucket = self.held.get(caller)
        if bucket is None:
            self._make_room(now, self.most)
            bucket = self.held[caller] = _Bucket(self.most, now)
        level = min(self.most, bucket.level + (now - bucket.filled) * rate)
        bucket.level, bucket.filled = level, now
        if level < 1:
            return math.ceil((1 - level) / rate)
        bucket.level -= 1
        return 0

    def _make_room(self, now: float, most: int) -> None:
        if len(self.held) < CALLERS_HELD:
            return
        used = {
            name: each
            for name, each in self.held.items()
            if each.level + (now - each.filled) * most / MINUTE < most
        }
        self.held = dict(list(used.items())[-CALLERS_HELD // 2 :])


@dataclass(frozen=True, slots=True)
class Caller:
    """The client that sent a request; ``principal`` owns the threads that the client sees."""

    principal: str | None
    counted_as: str
    rates: Rates
    streams: Shares

    def check_run(self) -> None:
        seconds = self.rates.runs.take(self.counted_as)
        if seconds:
            raise too_many("messages and answers", seconds)

    def open_stream(self) -> ExitStack:
        place = ExitStack()
        try:
            place.enter_context(self.streams.place(self.counted_as))
        except FullShareError:
            why = f"You have {self.streams.most} streams of events open: close a page."
            raise _later(why, 5) from None
        return place


def caller_of(request: Request) -> Caller:
    caller: Caller = request.scope[CALLER]
    return caller


def too_many(what: str, seconds: int) -> HTTPException:
    return _later(f"Too many {what}. Try again in {seconds} s.", seconds)


def full(seconds: int) -> HTTPException:
    return _later(
        f"Too many messages already wait for an answer. Send this message again in {seconds} s:"
        " the server did not store it.",
        seconds,
    )


def _later(why: str, seconds: int) -> HTTPException:
    return HTTPException(429, why, {"Retry-After": str(seconds)})
