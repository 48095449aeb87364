"""Limits of one turn of an agent, and the part of them that a branch has which runs elsewhere.

They are values, which count nothing: what has been used is ``_spent``, who may send is ``_meter``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TypeAlias

from anabranch._budget import Limits
from anabranch.agents._spent import Spent
from anabranch.errors import AnabranchError
from anabranch.messages import Usage

Price: TypeAlias = Callable[[str, Usage], float]
"""Returns the cost of a reply, in any currency, from the model's name and the reply's usage."""


class TurnLimitError(AnabranchError):
    """A turn has reached one of its limits. Everything it has produced so far is in the tree.

    Attributes:
        used: how much the turn has used.
        limit: how much it may use.
        needed: how much more its next request needs at least, 0 if the limit is reached already.
    """

    def __init__(self, what: str, used: float, limit: float, needed: float = 0) -> None:
        self.used = used
        self.limit = limit
        self.needed = needed
        more = f", and its next request needs {needed:g} more at least" if needed else ""
        super().__init__(
            f"The turn stopped: it has used {used:g} of {limit:g} {what}{more}. Send a message to"
            " continue, or raise the limit."
        )


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Limits of one turn, including all branches that it opens.

    ``max_depth``, ``max_tokens`` and ``timeout`` have the meaning that they have in
    :class:`anabranch.Limits`, applied to the branches of a turn.

    Attributes:
        max_requests: consecutive requests to the model on one path.
        max_tokens: tokens of all requests, those of tools included, as reported by the provider, or
            estimated where it reports none.
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

    @classmethod
    def of(cls, limits: Limits) -> TurnLimits:
        """Return those limits of a turn that ``limits`` has, and the defaults for the others."""
        given = {name: value for name, value in asdict(limits).items() if value is not None}
        return cls(**given)


def of_tools(limits: Limits) -> Limits:
    """Return what ``limits`` of a turn are for each call of a tool: its tokens are the turn's."""
    return replace(limits, max_tokens=None)


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a turn's limits, for a branch that another process works on.

    Attributes:
        tokens: as ``max_tokens``; ``None`` if the turn's are not limited.
        cost: as ``max_cost``; ``None`` if the turn's is not limited.
        branches: as ``max_branches``.
        requests: as ``max_concurrent_requests``.
    """

    tokens: int | None
    cost: float | None
    branches: int
    requests: int

    def of(self, limits: TurnLimits) -> TurnLimits:
        """Return ``limits`` with these in place of the turn's own."""
        return replace(
            limits,
            max_tokens=self.tokens,
            max_cost=self.cost,
            max_branches=self.branches,
            max_concurrent_requests=self.requests,
        )

    @property
    def whole(self) -> Spent:
        """What has been used when all of it has."""
        return Spent(self.tokens or 0, self.cost or 0.0, self.branches)
