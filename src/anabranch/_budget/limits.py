"""Limits of a branch (depth, tokens, time), and shares of a server's places.

An inner limit of a branch can only narrow an outer one. A *place* is a resource of a server that is
held for long, such as a stream of events. A caller who held all places would keep everyone else out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TypeVar

_N = TypeVar("_N", int, float)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on a branch and everything inside it; ``None`` means no limit at this level.

    Attributes:
        max_depth: the maximum depth of branches below the tool or branch with this limit: 1 allows
            branches without sub-branches, 0 allows no branch.
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
        """Return the lower value of these limits and ``inner`` for each field."""
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


class FullShareError(Exception):
    """A caller already holds its maximum number of the server's places."""


class Shares:
    """Counts the requests or streams of each caller in this process, at most ``most`` each."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._held: Counter[str] = Counter()

    def is_full(self, caller: str) -> bool:
        return self.most is not None and self._held[caller] >= self.most

    @contextmanager
    def place(self, caller: str) -> Generator[None]:
        """Hold one of the caller's places inside the block."""
        if self.is_full(caller):
            raise FullShareError
        self._held[caller] += 1
        try:
            yield
        finally:
            self._held[caller] -= 1
            if not self._held[caller]:
                del self._held[caller]


def by_address(address: str) -> str:
    """Return the caller for an address: the address itself or, for IPv6, its /64 network."""
    try:
        read = ip_address(address)
    except ValueError:  # a socket without addresses
        return address
    if not isinstance(read, IPv6Address):
        return address
    return str(read.ipv4_mapped or ip_network((read, 64), strict=False))
