"""An account of what is spent: tokens, and their cost where it is known, within budgets.

Everything that spends has one: the branches of a call, a turn of an agent. An account may have a
budget and a parent; what is spent in it counts in every account around it. A request is paid in two
steps. When it is admitted, what it may take is *reserved*, so that requests at the same time do not
spend the same tokens. When its reply is there, the reservation is *settled*: the usage takes its
place. So a budget is exceeded by no more than what admitted requests take beyond their reservations,
and at most by one reply for each. Something that has a budget of its own and is accounted for
elsewhere, such as a stored branch, is paid in the same way: its whole budget is reserved while it is
open, and settled by what it has used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Literal

WARN_AT = 0.8
"""The share of a budget of tokens at which its account warns, once."""


class BudgetError(Exception):
    """A budget does not hold what is wanted; what an account is for names the error to be shown.

    Attributes:
        account: the innermost account whose budget it is.
        what: ``tokens`` or ``cost``.
        wanted: the least that was wanted of it.
    """

    def __init__(self, account: Account, what: Literal["tokens", "cost"], wanted: int) -> None:
        self.account: Account = account
        self.what: Literal["tokens", "cost"] = what
        self.wanted: int = wanted
        super().__init__(f"{account.name}: no {what} left for {wanted}")


class Reservation:
    """Tokens, and their estimated cost, that a request may take: not spent, and not free either."""

    __slots__ = ("_holders", "cost", "tokens")

    def __init__(self, tokens: int, cost: float = 0.0) -> None:
        self.tokens: int = tokens
        self.cost: float = cost
        self._holders: list[Account] = []

    def hold_in(self, account: Account) -> None:
        """Let this count in ``account`` (and not in those around it)."""
        account.reserved += self.tokens
        account.reserved_cost += self.cost
        self._holders.append(account)

    def release(self) -> None:
        """Let this count nowhere any more: its request was not made, or is settled."""
        for account in self._holders:
            account.reserved -= self.tokens
            account.reserved_cost -= self.cost
            account.wake()
        self._holders.clear()


class Account:
    """What one branch, or one turn, has spent and reserved, all that is inside of it included.

    Attributes:
        name: of what spends, for errors.
        parent: the account around it.
        max_tokens: its budget, ``None`` for none of its own.
        max_cost: its budget of cost.
        tokens: what is spent.
        cost: what that has cost, as far as it is known.
        reserved: tokens of requests without a reply yet.
        reserved_cost: what these may cost.
        has_warned: whether it has reached :data:`WARN_AT` of its tokens.
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
        self._waiting: list[asyncio.Future[None]] | None = None  # thousands of accounts wait never

    @property
    def left(self) -> int | None:
        """The least that any enclosing budget of tokens has left, ``None`` without a budget."""
        least: int | None = None
        for account in self._lineage():
            if account.max_tokens is not None:
                free = max(0, account.max_tokens - account.tokens - account.reserved)
                least = free if least is None else min(least, free)
        return least

    @property
    def is_limited(self) -> bool:
        """Whether there is any budget around it."""
        return any(
            account.max_tokens is not None or account.max_cost is not None
            for account in self._lineage()
        )

    @property
    def is_exhausted(self) -> bool:
        """Whether its own tokens are spent, or so many that what is reserved no longer fits."""
        most = self.max_tokens
        return most is not None and (self.tokens >= most or self.tokens + self.reserved > most)

    def reserve(self, least: int, most: int, cost: float = 0.0) -> Reservation:
        """Reserve ``most`` tokens, or what is left if that is ``least`` at least; and ``cost``.

        Raises:
            BudgetError: if a budget does not hold ``least``, or has no cost left at all.
        """
        if (refusal := next(self._short_of(least, 0.0), None)) is not None:
            raise refusal
        left = self.left
        reservation = Reservation(most if left is None else min(most, left), cost)
        for account in self._lineage():
            reservation.hold_in(account)
        return reservation

    async def reserve_in_turn(self, least: int, most: int, cost: float = 0.0) -> Reservation:
        """Reserve as :meth:`reserve` does; but wait first while others may still give some back.

        So a request is neither refused nor cut short because of what others have reserved and may
        not spend.
        """
        while (busy := self._busy(most, cost)) is not None:
            await busy.changed()
        return self.reserve(least, most, cost)

    def is_busy(self, tokens: int) -> bool:
        """Return whether it does not hold this much as long as others have reserved some."""
        return self._busy(tokens, 0.0) is not None

    def reserved_before(self, tokens: int) -> Reservation:
        """Return what was reserved here when this account was read from a record."""
        reservation = Reservation(tokens)
        self.reserved -= tokens
        reservation.hold_in(self)
        return reservation

    def settle(
        self, reservation: Reservation | None, tokens: int, cost: float = 0.0
    ) -> list[Account]:
        """Charge the usage in place of ``reservation``, here and in every account around.

        Returns those of them that have reached :data:`WARN_AT` by this; each is returned once.
        """
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
        """Check that no more is spent than the budgets hold.

        Raises:
            BudgetError: if more is.
        """
        for account in self._lineage():
            if account.max_tokens is not None and account.tokens > account.max_tokens:
                raise BudgetError(account, "tokens", account.tokens)

    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done when something is given back."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting = [*(self._waiting or ()), future]
        return future

    def wake(self) -> None:
        """Let those who wait look again."""
        waiting, self._waiting = self._waiting, None
        for future in waiting or ():
            if not future.done():
                future.set_result(None)

    def _lineage(self) -> Iterator[Account]:
        """Return this account and those around it, the innermost first."""
        account: Account | None = self
        while account is not None:
            yield account
            account = account.parent

    def _short_of(self, tokens: int, cost: float) -> Iterator[BudgetError]:
        """Return an error for each budget that does not hold this much now."""
        for account in self._lineage():
            taken = account.tokens + account.reserved
            if account.max_tokens is not None and taken + tokens > account.max_tokens:
                yield BudgetError(account, "tokens", taken + tokens)
            spent = account.cost + account.reserved_cost
            limit = account.max_cost
            if limit is not None and (spent >= limit or spent + cost > limit):
                yield BudgetError(account, "cost", tokens)

    def _busy(self, tokens: int, cost: float) -> Account | None:
        """Return an account that does not hold this much as long as others have reserved some."""
        short = (refusal.account for refusal in self._short_of(tokens, cost))
        return next((each for each in short if each.reserved or each.reserved_cost), None)
