"""Limits of one turn of an agent, and the meter that admits its requests and counts what they use.

Every request that a turn makes passes the meter: replies on its paths, judges, and the samples of
tools. The meter raises; what happens when a limit is reached is decided by the code that meets it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from pydantic import JsonValue

from anabranch._account import Account, BudgetError, Reservation
from anabranch._asking.tokens import ADMISSION_MARGIN, estimate_tokens, prompt_tokens, said
from anabranch._telemetry import report_turn_tokens
from anabranch.errors import AnabranchError
from anabranch.messages import SampleReply, SampleRequest, Usage

__all__ = [
    "ESTIMATE",
    "AdmittedRequest",
    "Charge",
    "Meter",
    "Price",
    "Share",
    "SideUsage",
    "Spent",
    "TurnLimitError",
    "TurnLimits",
    "UsageTotal",
]

logger: logging.Logger = logging.getLogger("anabranch.agents")

ESTIMATE = "estimate"
"""In a node: tokens and cost of requests whose provider has reported none, as they were counted."""

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

    def or_more(self, share: Share) -> Spent:
        """Return this, or of each kind what ``share`` allows where that is more."""
        return Spent(
            max(self.tokens, share.tokens or 0),
            max(self.cost, share.cost or 0.0),
            max(self.branches, share.branches),
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


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A request that may be sent now.

    Attributes:
        request: as it is sent, its ``max_tokens`` reduced to what is left.
        settle: counts the reply in place of what was reserved for it, and returns as what.
    """

    request: SampleRequest
    settle: Callable[[SampleReply], Awaitable[Charge]]


@dataclass(slots=True)
class Meter:
    """Admits the requests of a turn, and counts them.

    The turn shares one with all branches that are worked on in the same process.

    Attributes:
        limits: of the turn, or of the branch that alone is worked on here.
        earlier: returns what was used before, in whatever process; ``None`` if nothing was.
        account: what the turn has spent and reserved.
    """

    limits: TurnLimits
    earlier: Callable[[], Awaitable[Spent]] | None = None
    account: Account = field(init=False)
    _requests: asyncio.Semaphore = field(init=False)
    _reading: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _branches: int = 0
    _priced: str | None = None
    _shares: dict[str, Share | None] = field(init=False, default_factory=dict[str, "Share | None"])

    def __post_init__(self) -> None:
        limits = self.limits
        self.account = Account("turn", max_tokens=limits.max_tokens, max_cost=limits.max_cost)
        self._requests = asyncio.Semaphore(limits.max_concurrent_requests)

    async def _count_earlier(self) -> None:
        """Count what was used before, once."""
        async with self._reading:
            if self.earlier is not None:
                self._count(await self.earlier())
                self.earlier = None

    def _count(self, spent: Spent) -> None:
        self.account.tokens += spent.tokens
        self.account.cost += spent.cost
        self._branches += spent.branches

    async def open_branches(self, count: int) -> None:
        """Count ``count`` branches that are about to be opened.

        Raises:
            TurnLimitError: the turn may not open that many more; none of them is counted.
            StoreError: the store failed.
        """
        await self._count_earlier()
        limit = self.limits.max_branches
        if self._branches + count > limit:
            raise TurnLimitError("branches", self._branches, limit)
        self._branches += count

    def share(self, caller: str, count: int, needed: int) -> Share | None:
        """Set aside an equal part of what is left for each of ``count`` branches, and return it.

        One more part stays for the turn itself. There are no shares, ``None``, where one would not
        hold a first request of ``needed`` tokens, or no request at all.

        Args:
            caller: names the tools that open the branches, so that each of them has the same.
            count: how many branches these open.
            needed: tokens of the first request of a branch.
        """
        if caller not in self._shares:
            limits, account, parts = self.limits, self.account, count + 1
            tokens = None if account.left is None else account.left // parts
            cost = None
            if limits.max_cost is not None:
                cost = max(0.0, limits.max_cost - account.cost - account.reserved_cost) / parts
            requests = limits.max_concurrent_requests // parts
            branches = (limits.max_branches - self._branches) // parts
            share = Share(tokens, cost, branches, requests)
            if requests == 0 or (tokens is not None and tokens <= needed):
                self._shares[caller] = None
            else:
                self._shares[caller] = share
                for _ in range(count):
                    self._count(Spent().or_more(share))
        return self._shares[caller]

    @asynccontextmanager
    async def admitted(self, request: SampleRequest) -> AsyncGenerator[AdmittedRequest]:
        """Wait until ``request`` may be sent; what is not settled when this is left is not used.

        It waits for others while what they have reserved may turn out to be enough for it.

        Raises:
            TurnLimitError: the tokens or the cost are used up.
        """
        most = min(request.max_tokens, self.limits.max_reply_tokens)
        limited = self.account.is_limited
        if limited:
            await self._count_earlier()
        async with self._requests:
            prompt = math.ceil(prompt_tokens(request) * ADMISSION_MARGIN) if limited else 0
            cost = self._cost(self._priced, Usage(input_tokens=prompt, output_tokens=most))
            try:
                reserved = await self.account.reserve_in_turn(prompt + 1, prompt + most, cost or 0)
            except BudgetError as refusal:
                raise _as_turn_error(refusal) from None
            sent = request.model_copy(update={"max_tokens": reserved.tokens - prompt})
            try:
                yield AdmittedRequest(sent, partial(self._settle, reserved, prompt))
            finally:
                reserved.release()

    async def _settle(self, reserved: Reservation, prompt: int, reply: SampleReply) -> Charge:
        usage, reported = reply.usage, reply.usage is not None and reply.usage.total_tokens > 0
        if usage is None or not reported:
            usage = Usage(input_tokens=prompt, output_tokens=estimate_tokens(said(reply)))
        cost = self._cost(reply.model, usage)
        report_turn_tokens(usage.input_tokens, usage.output_tokens)
        if self.account.settle(reserved, usage.total_tokens, cost or 0):
            logger.warning(
                "a turn has used %d of its %d tokens", self.account.tokens, self.limits.max_tokens
            )
        if cost is not None:
            self._priced = reply.model
        if reported:
            return Charge(cost)
        counted = Spent(usage.total_tokens, cost or 0.0) if self.account.is_limited else None
        return Charge(estimate=counted)

    def _cost(self, model: str | None, usage: Usage) -> float | None:
        price = self.limits.price
        return None if price is None or model is None else price(model, usage)


def _as_turn_error(refusal: BudgetError) -> TurnLimitError:
    account = refusal.account
    if refusal.what == "cost":
        return TurnLimitError("cost", account.cost, account.max_cost or 0)
    limit = account.max_tokens or 0
    needed = 0 if account.tokens >= limit else refusal.wanted - account.tokens
    return TurnLimitError("tokens", account.tokens, limit, needed)
