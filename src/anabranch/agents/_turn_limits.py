"""Limits of one turn of an agent, and the meter that counts what the turn has used.

The meter raises; what happens when a limit is reached is decided by the code that meets it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from anabranch.errors import AnabranchError
from anabranch.messages import Usage

__all__ = ["Meter", "Price", "TurnLimitError", "TurnLimits", "UsageTotal"]

Price: TypeAlias = Callable[[str, Usage], float]
"""Returns the cost of a reply, in any currency, from the model's name and the reply's usage."""


class TurnLimitError(AnabranchError):
    """A turn has reached one of its limits. Everything it has produced so far is in the tree.

    Attributes:
        used: how much the turn has used.
        limit: how much it may use.
    """

    def __init__(self, what: str, used: float, limit: float) -> None:
        self.used = used
        self.limit = limit
        super().__init__(
            f"The turn stopped: it has used {used:g} of {limit:g} {what}. Send a message to"
            " continue, or raise the limit."
        )


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Limits of one turn, including all branches that it opens.

    ``max_depth``, ``max_tokens`` and ``timeout`` have the meaning that they have in
    :class:`anabranch.Limits`, applied to the branches of a turn.

    Attributes:
        max_requests: consecutive requests to the model on one path.
        max_tokens: tokens of all requests, as reported by the provider.
        max_cost: cost of all requests, as computed by ``price``.
        price: computes the cost of a reply; without it, no cost is known or limited.
        max_depth: how deeply branches may be nested; 0 allows none.
        max_branches: branches opened in the turn, nested ones included.
        max_branches_per_call: prompts in one call of ``branch_self``.
        timeout: seconds that each branch may take, its nested branches included. The turn's own
            path has no deadline.
        max_concurrent_requests: requests to the model that may run at the same time.
        max_reply_tokens: tokens of one reply.
    """

    max_requests: int = 50
    max_tokens: int | None = None
    max_cost: float | None = None
    price: Price | None = None
    max_depth: int = 4
    max_branches: int = 1_000
    max_branches_per_call: int = 50
    timeout: float | None = None
    max_concurrent_requests: int = 100
    max_reply_tokens: int = 8_192


@dataclass(slots=True)
class UsageTotal:
    """Usage and cost summed over requests whose replies are not stored as nodes.

    Attributes:
        usage: the sum, ``None`` if no request has reported any.
        cost: the sum, ``None`` if no cost is known.
    """

    usage: Usage | None = None
    cost: float | None = None

    def add(self, usage: Usage | None, cost: float | None) -> None:
        """Add the usage and cost of one request."""
        if usage is not None:
            before = self.usage or Usage()
            self.usage = Usage(
                input_tokens=before.input_tokens + usage.input_tokens,
                output_tokens=before.output_tokens + usage.output_tokens,
                cache_read_tokens=before.cache_read_tokens + usage.cache_read_tokens,
                cache_write_tokens=before.cache_write_tokens + usage.cache_write_tokens,
            )
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost


class Meter:
    """Counts what a turn uses; the turn and all its branches share one."""

    def __init__(self, limits: TurnLimits) -> None:
        self._limits = limits
        self._tokens = 0
        self._cost = 0.0
        self._branches = 0

    def check(self) -> None:
        """Check that another request may be made.

        Raises:
            TurnLimitError: the tokens or the cost are used up.
        """
        limits = self._limits
        if limits.max_tokens is not None and self._tokens >= limits.max_tokens:
            raise TurnLimitError("tokens", self._tokens, limits.max_tokens)
        if limits.max_cost is not None and self._cost >= limits.max_cost:
            raise TurnLimitError("cost", self._cost, limits.max_cost)

    def open_branches(self, count: int) -> None:
        """Count ``count`` branches that are about to be opened.

        Raises:
            TurnLimitError: the turn may not open that many more; none of them is counted.
        """
        limit = self._limits.max_branches
        if self._branches + count > limit:
            raise TurnLimitError("branches", self._branches, limit)
        self._branches += count

    def add(self, model: str, usage: Usage | None) -> float | None:
        """Count a reply; return its cost, ``None`` if that is not known."""
        if usage is None:
            return None
        self._tokens += usage.total_tokens
        if self._limits.price is None:
            return None
        cost = self._limits.price(model, usage)
        self._cost += cost
        return cost
