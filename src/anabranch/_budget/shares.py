"""Shares of a server's places: how many of them one caller may hold at the same time.

A place is what is held for long, such as a stream of events: a connection that is in use. Who holds
all of them keeps everyone else out, so each caller has a share. What is soon over needs none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address, ip_network


class FullShareError(Exception):
    """A caller holds as many places as one may have."""


class Shares:
    """Counts the places that callers hold in this process.

    Args:
        most: how many one caller may hold; ``None`` for any number.
    """

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._held: Counter[str] = Counter()

    @contextmanager
    def place(self, caller: str) -> Generator[None]:
        """Hold a place inside the block.

        Raises:
            FullShareError: if the caller holds the most already.
        """
        if self.most is not None and self._held[caller] >= self.most:
            raise FullShareError
        self._held[caller] += 1
        try:
            yield
        finally:
            self._held[caller] -= 1
            if not self._held[caller]:
                del self._held[caller]


def by_address(address: str) -> str:
    """Return as whom an address counts: of IPv6, a host has a whole network.

    A socket for both kinds reports those of IPv4 within one network of IPv6.
    """
    try:
        read = ip_address(address)
    except ValueError:  # a socket without addresses
        return address
    if not isinstance(read, IPv6Address):
        return address
    return str(read.ipv4_mapped or ip_network((read, 64), strict=False))
