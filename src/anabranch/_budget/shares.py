"""Shares of a server's places: the maximum that one caller may hold at the same time.

A *place* is a resource that is held for long, such as a connection with a stream of events. A
caller who held all places would keep everyone else out, so each caller has a share. Short requests
need no share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address, ip_network


class FullShareError(Exception):
    """A caller already holds the maximum number of places."""


class Shares:
    """Counts the places that callers hold in this process.

    Args:
        most: maximum places of one caller; ``None`` for no limit.
    """

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._held: Counter[str] = Counter()

    def is_full(self, caller: str) -> bool:
        """Return whether the caller holds the most already."""
        return self.most is not None and self._held[caller] >= self.most

    @contextmanager
    def place(self, caller: str) -> Generator[None]:
        """Hold a place inside the block.

        Raises:
            FullShareError: if the caller already holds the maximum.
        """
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
    """Return the caller for an address: the address itself or, for IPv6, its /64 network.

    A dual-stack socket reports IPv4 addresses within one IPv6 network.
    """
    try:
        read = ip_address(address)
    except ValueError:  # a socket without addresses
        return address
    if not isinstance(read, IPv6Address):
        return address
    return str(read.ipv4_mapped or ip_network((read, 64), strict=False))
