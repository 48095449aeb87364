"""Limits of branches, accounts of tokens, and each caller's share of a server's places.

An inner limit of a branch can only narrow an outer one. The admission of a request *reserves* the
tokens that the request may take, so that concurrent requests do not spend the same tokens; the usage
*settles* the reservation. So a budget is exceeded by at most one reply for each admitted request.

A *place* is a resource of a server that is held for long, such as a stream of events. A caller who
held all places would keep everyone else out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Literal, TypeVar

_N = TypeVar("_N", int, float)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on a call or a branch, including its inner branches; ``None`` sets no limit.

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


WARN_AT = 0.8
"""The used share of a token budget at which the account warns, once."""


class BudgetError(Exception):
    """A budget is too small for a request; the owner of the account maps this to the error to show.

    ``account`` is the innermost account whose budget of ``what`` is too small, and ``wanted`` the minimum.
    """

    def __init__(self, account: Account, what: Literal["tokens", "cost"], wanted: int) -> None:
        self.account: Account = account
        self.what: Literal["tokens", "cost"] = what
        self.wanted: int = wanted
        super().__init__(f"{account.name}: no {what} left for {wanted}")


class Reservation:
    """Tokens, and their estimated cost, that an admitted request may take: neither spent nor free."""

    __slots__ = ("_holders", "cost", "tokens")

    def __init__(self, tokens: int, cost: float = 0.0) -> None:
        self.tokens: int = tokens
        self.cost: float = cost
        self._holders: list[Account] = []

    def hold_in(self, account: Account) -> None:
        """Count this reservation in ``account``, and not in the accounts around it."""
        account.reserved += self.tokens
        account.reserved_cost += self.cost
        self._holders.append(account)

    def release(self) -> None:
        """Stop counting this reservation, because its request was not made or is settled."""
        for account in self._holders:
            account.reserved -= self.tokens
            account.reserved_cost -= self.cost
            account.wake()
        self._holders.clear()


class Account:
    """The spent and reserved tokens of one branch or one turn, and of all branches inside it.

    ``max_tokens`` is ``None`` for no budget at this level. ``reserved`` are tokens of requests
    without a reply yet. ``has_warned`` says whether the account has reached :data:`WARN_AT` of its
    tokens.
    """

    __slots__ = (
        "_waiting", "cost", "has_warned", "max_cost", "max_tokens", "name", "parent", "reserved",
        "reserved_cost", "tokens",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        parent: Account | None = None,
        *,
        max_tokens: int | None = None,
        max_cost: float | None = None,
        tokens: int = 0,
        reserved: int = 0,
        has_warned: bool = False,
    ) -> None:
        self.name: str = name
        self.parent: Account | None = parent
        self.max_tokens: int | None = max_tokens
        self.max_cost: float | None = max_cost
        self.tokens: int = tokens
        self.cost: float = 0.0
        self.reserved: int = reserved
        self.reserved_cost: float = 0.0
        self.has_warned: bool = has_warned
        self._waiting: list[asyncio.Future[None]] | None = None  # most accounts never have a waiter

    @property
    def left(self) -> int | None:
        """The tokens left in the tightest enclosing budget; ``None`` without a budget."""
        least: int | None = None
        for account in self._lineage():
            if account.max_tokens is not None:
                free = max(0, account.max_tokens - account.tokens - account.reserved)
                least = free if least is None else min(least, free)
        return least

    @property
    def is_limited(self) -> bool:
        return any(
            account.max_tokens is not None or account.max_cost is not None
            for account in self._lineage()
        )

    @property
    def is_exhausted(self) -> bool:
        """Whether the tokens are spent, or too few are left for the account's own reservations."""
        most = self.max_tokens
        return most is not None and (self.tokens >= most or self.tokens + self.reserved > most)

    def reserve(self, least: int, most: int, cost: float = 0.0) -> Reservation:
        """Reserve ``cost`` and ``most`` tokens, or the tokens left if at least ``least`` are left."""
        if (refusal := next(self._short_of(least, 0.0), None)) is not None:
            raise refusal
        left = self.left
        reservation = Reservation(most if left is None else min(most, left), cost)
        for account in self._lineage():
            reservation.hold_in(account)
        return reservation

    async def reserve_in_turn(self, least: int, most: int, cost: float = 0.0) -> Reservation:
        """Reserve like :meth:`reserve`, but wait while other requests may free reserved tokens.

        So a reservation that its holder returns unspent neither refuses nor shortens this request.
        """
        while (busy := self._busy(most, cost)) is not None:
            await busy.changed()
        return self.reserve(least, most, cost)

    def is_busy(self, tokens: int) -> bool:
        """Return whether ``tokens`` fit only after other requests free reserved tokens."""
        return self._busy(tokens, 0.0) is not None

    def reserved_before(self, tokens: int) -> Reservation:
        """Return a reservation of ``tokens`` that this account, read from a record, counts already."""
        reservation = Reservation(tokens)
        self.reserved -= tokens
        reservation.hold_in(self)
        return reservation

    def settle(
        self, reservation: Reservation | None, tokens: int, cost: float = 0.0
    ) -> list[Account]:
        """Charge the usage; return the accounts that reach :data:`WARN_AT` of their tokens now."""
        if reservation is not None:
            reservation.release()
        warning: list[Account] = []
        for account in self._lineage():
            account.tokens += tokens
            account.cost += cost
            most = account.max_tokens
            if most is not None and not account.has_warned and account.tokens >= WARN_AT * most:
                account.has_warned = True
                warning.append(account)
        return warning

    def check(self) -> None:
        for account in self._lineage():
            if account.max_tokens is not None and account.tokens > account.max_tokens:
                raise BudgetError(account, "tokens", account.tokens)

    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done when a reservation of this account is released."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting = [*(self._waiting or ()), future]
        return future

    def wake(self) -> None:
        """Let the requests that wait for tokens check the account again."""
        waiting, self._waiting = self._waiting, None
        for future in waiting or ():
            if not future.done():
                future.set_result(None)

    def _lineage(self) -> Iterator[Account]:
        """Yield this account and the accounts around it, the innermost first."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    def _short_of(self, tokens: int, cost: float) -> Iterator[BudgetError]:
        """Yield an error for each budget in which ``tokens`` or ``cost`` exceed the rest."""
        for account in self._lineage():
            taken = account.tokens + account.reserved
            if account.max_tokens is not None and taken + tokens > account.max_tokens:
                yield BudgetError(account, "tokens", taken + tokens)
            spent = account.cost + account.reserved_cost
            limit = account.max_cost
            if limit is not None and (spent >= limit or spent + cost > limit):
                yield BudgetError(account, "cost", tokens)

    def _busy(self, tokens: int, cost: float) -> Account | None:
        """Return an account that lacks ``tokens`` or ``cost`` until other requests free theirs."""
        short = (refusal.account for refusal in self._short_of(tokens, cost))
        return next((each for each in short if each.reserved or each.reserved_cost), None)


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
    """Return the caller for an address: the address itself or, for IPv6, its /64 network.

    A dual-stack socket reports all IPv4 addresses within one IPv6 network: each is its own caller.
    """
    try:
        read = ip_address(address)
    except ValueError:  # a socket without addresses
        return address
    if not isinstance(read, IPv6Address):
        return address
    return str(read.ipv4_mapped or ip_network((read, 64), strict=False))
