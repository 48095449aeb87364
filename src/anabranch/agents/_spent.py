"""The tokens, cost and branches that a turn has used, as nodes store them, and sums of them.

It counts what has been said and knows no limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from anabranch.messages import Usage

ESTIMATE = "estimate"
"""In a node: tokens and cost of requests whose provider has reported none, as they were counted."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a part of a turn has used: tokens, cost, and branches opened."""

    tokens: int = 0
    cost: float = 0.0
    branches: int = 0

    def __add__(self, other: Spent) -> Spent:
        """Return what both have used."""
        return Spent(
            self.tokens + other.tokens, self.cost + other.cost, self.branches + other.branches
        )

    def or_more(self, other: Spent) -> Spent:
        """Return this, or of each kind what ``other`` has where that is more."""
        return Spent(
            max(self.tokens, other.tokens),
            max(self.cost, other.cost),
            max(self.branches, other.branches),
        )


@dataclass(frozen=True, slots=True)
class Charge:
    """What one reply was counted as.

    Attributes:
        cost: as reported usage costs; ``None`` if that is not known.
        estimate: what was counted where the provider has reported no usage, and limits apply.
    """

    cost: float | None = None
    estimate: Spent | None = None

    @property
    def data(self) -> dict[str, JsonValue]:
        """What the node of the reply says of it."""
        data: dict[str, JsonValue] = {} if self.cost is None else {"cost": self.cost}
        return data | _estimated(self.estimate)


def _estimated(spent: Spent | None) -> dict[str, JsonValue]:
    return {} if spent is None else {ESTIMATE: {"tokens": spent.tokens, "cost": spent.cost}}


@dataclass(slots=True)
class UsageTotal:
    """Usage and cost summed over requests whose replies are not stored as nodes.

    Attributes:
        usage: the sum, ``None`` if no request has reported any.
        cost: the sum, ``None`` if no cost is known.
        requests: how many there were.
        estimate: what was counted for those that have reported nothing.
    """

    usage: Usage | None = None
    cost: float | None = None
    requests: int = 0
    estimate: Spent | None = None

    def add(
        self,
        usage: Usage | None,
        cost: float | None,
        requests: int = 1,
        estimate: Spent | None = None,
    ) -> None:
        """Add the usage and cost of one request, or of several."""
        self.requests += requests
        if estimate is not None:
            self.estimate = (self.estimate or Spent()) + estimate
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


class SideUsage:
    """What the tools of one reply use beside it: the samples of tools, and judges."""

    def __init__(self) -> None:
        self._by_use: dict[str, UsageTotal] = {}

    def of(self, tool_use_id: str) -> UsageTotal:
        """Return the total to which one tool use adds."""
        return self._by_use.setdefault(tool_use_id, UsageTotal())

    def take(self) -> tuple[Usage | None, dict[str, JsonValue]]:
        """Return usage and data for the next node of these tools, and begin again at nothing.

        The data has the cost of all, and by tool use how many requests there were, their usage and
        their cost.
        """
        total, samples = UsageTotal(), dict[str, JsonValue]()
        for use_id, used in self._by_use.items():
            if not used.requests:
                continue
            total.add(used.usage, used.cost, used.requests, used.estimate)
            samples[use_id] = {
                "requests": used.requests,
                **({} if used.usage is None else {"usage": used.usage.model_dump(mode="json")}),
                **({} if used.cost is None else {"cost": used.cost}),
            }
            used.usage, used.cost, used.requests, used.estimate = None, None, 0, None
        data = Charge(total.cost, total.estimate).data
        if samples:
            data["samples"] = samples
        return total.usage, data
