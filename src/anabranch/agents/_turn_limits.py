"""What one turn of an agent may use.

Owns the numbers and the counting. What happens when a limit is reached is decided where it is met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.errors import AnabranchError
from anabranch.messages import Usage

__all__ = ["Meter", "Spent", "TurnLimitError", "TurnLimits"]

Price = Callable[[str, Usage], float]
"""What a model's answer costs, by the model's name, in whatever currency."""


class TurnLimitError(AnabranchError):
    """A turn has used what it may. All that it has said and done is in the tree."""

    def __init__(self, what: str, used: float, limit: float) -> None:
        self.used = used
        self.limit = limit
        super().__init__(
            f"The turn stopped: it has used {used:g} of {limit:g} {what}. Say something to let it"
            " go on, or raise the limit."
        )


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Limits of one turn, the branches that it opens included.

    Attributes:
        iterations: requests to the model, one after the other, on one path.
        tokens: of all requests together, as providers report them.
        cost: of all requests together, by ``price``.
        price: what an answer costs.
        depth: how deep branches may open branches.
        branches: how many prompts one call of ``branch_self`` may have.
        branches_in_all: how many branches may be opened, branches of branches included.
        branch_timeout: seconds that one branch may take, its own branches included.
        at_once: how many requests to the model may run at the same time.
        max_tokens: of one answer.
    """

    iterations: int = 50
    tokens: int | None = None
    cost: float | None = None
    price: Price | None = None
    depth: int = 4
    branches: int = 50
    branches_in_all: int = 1_000
    branch_timeout: float | None = None
    at_once: int = 100
    max_tokens: int = 8_192


@dataclass(slots=True)
class Spent:
    """What requests have used whose answers are no nodes, for a node that is to tell of it.

    Attributes:
        usage: of all of them together, ``None`` if nothing was reported.
        cost: likewise.
    """

    usage: Usage | None = None
    cost: float | None = None

    def add(self, usage: Usage | None, cost: float | None) -> None:
        """Count one more."""
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
    """What a turn has used so far; its branches share it."""

    def __init__(self, limits: TurnLimits) -> None:
        self._limits = limits
        self.tokens: int = 0
        self.cost: float = 0.0
        self.branches: int = 0

    def check(self) -> None:
        """Refuse a further request.

        Raises:
            TurnLimitError: nothing is left.
        """
        limits = self._limits
        if limits.tokens is not None and self.tokens >= limits.tokens:
            raise TurnLimitError("tokens", self.tokens, limits.tokens)
        if limits.cost is not None and self.cost >= limits.cost:
            raise TurnLimitError("cost", self.cost, limits.cost)

    def open(self, branches: int) -> None:
        """Count branches that are about to be opened.

        Raises:
            TurnLimitError: they would be too many; none is counted.
        """
        limit = self._limits.branches_in_all
        if self.branches + branches > limit:
            raise TurnLimitError("branches", self.branches, limit)
        self.branches += branches

    def add(self, model: str, usage: Usage | None) -> float | None:
        """Count an answer; return its cost if that is known."""
        if usage is None:
            return None
        self.tokens += usage.total_tokens
        if self._limits.price is None:
            return None
        cost = self._limits.price(model, usage)
        self.cost += cost
        return cost
