"""The caller of a request: the principal that an application's authentication names, its rates and share."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request

from anabranch._budget import FullShareError, Shares
from anabranch.chat._web.rate_limits import Rates

STREAM_AGAIN = 5
"""Seconds until it is tried again to open a stream that was one too many."""

CALLER = "anabranch.caller"
"""Where a request's scope has it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request.

    Attributes:
        principal: the owner of what they begin, and nothing but what this owner has exists for
            them; ``None`` where callers are not distinguished.
        counted_as: under which name they are counted.
        rates: counts.
        streams: of which they have a share.
    """

    principal: str | None
    counted_as: str
    rates: Rates
    streams: Shares

    def check_run(self) -> None:
        """Count a run that they want to begin.

        Raises:
            HTTPException: there were too many.
        """
        seconds = self.rates.run(self.counted_as)
        if seconds:
            raise too_many("messages and answers", seconds)

    def open_stream(self) -> ExitStack:
        """Return the place of one more stream of events, which is theirs until it is closed.

        Raises:
            HTTPException: they have as many as one may have.
        """
        place = ExitStack()
        try:
            place.enter_context(self.streams.place(self.counted_as))
        except FullShareError:
            why = f"{self.streams.most} streams of events are open here already: close a page."
            raise _later(why, STREAM_AGAIN) from None
        return place

    def enter(self, request: Request) -> None:
        """Be the caller of ``request``."""
        request.scope[CALLER] = self


def caller_of(request: Request) -> Caller:
    """Return who makes a request."""
    caller: Caller = request.scope[CALLER]
    return caller


def too_many(what: str, seconds: int) -> HTTPException:
    """Return the refusal of one too many."""
    return _later(f"Too many {what}. Try again in {seconds} s.", seconds)


def full(seconds: int) -> HTTPException:
    """Return the refusal of a run for which there is no room."""
    return _later(
        f"Too many messages wait for an answer already. Send this one again in {seconds} s:"
        " nothing of it is stored.",
        seconds,
    )


def _later(why: str, seconds: int) -> HTTPException:
    return HTTPException(429, why, {"Retry-After": str(seconds)})
