"""Who makes a request: the principal that an application's authentication names, and its rates."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request

from anabranch.chat._web.rate_limits import Rates

__all__ = ["Caller", "caller_of", "full", "too_many"]

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
    """

    principal: str | None
    counted_as: str
    rates: Rates

    def check_run(self) -> None:
        """Count a run that they want to begin.

        Raises:
            HTTPException: there were too many.
        """
        seconds = self.rates.run(self.counted_as)
        if seconds:
            raise too_many("messages and answers", seconds)

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
