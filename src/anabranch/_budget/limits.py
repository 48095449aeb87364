"""Limits of a branch (depth, tokens, time), which an inner limit can only narrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

_N = TypeVar("_N", int, float)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on a branch and everything inside it; ``None`` means no limit at this level.

    Attributes:
        max_depth: the deepest allowed branch, counted from the tool with this limit, at depth 0:
            ``max_depth=1`` allows one level of sub-branches and ``max_depth=0`` none.
        max_tokens: the maximum tokens of all samples, prompts and completions.
        timeout: seconds from the start of the branch, including the wait for answers.

    Raises:
        ValueError: if a value is negative, or not a number.
    """

    max_depth: int | None = None
    max_tokens: int | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        for name in _NAMES:
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"Limits.{name} must not be negative, got {value!r}")

    def narrowed(self, inner: Limits | None) -> Limits:
        """Return the tighter limit of both, field by field."""
        if inner is None or inner is UNLIMITED or inner == UNLIMITED:
            return self
        return Limits(
            max_depth=_tightest(self.max_depth, inner.max_depth),
            max_tokens=_tightest(self.max_tokens, inner.max_tokens),
            timeout=_tightest(self.timeout, inner.timeout),
        )


def _tightest(outer: _N | None, inner: _N | None) -> _N | None:
    if outer is None or inner is None:
        return inner if outer is None else outer
    return min(outer, inner)


_NAMES = ("max_depth", "max_tokens", "timeout")
UNLIMITED = Limits()
"""Limits that limit nothing."""
