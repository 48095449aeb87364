"""The limits of one turn of an agent, and the meter that admits the turn's requests within them.

The nodes of a turn store its tokens, cost and branches, so a later process counts on.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast

from pydantic import JsonValue

from anabranch._asking import ADMISSION_MARGIN, estimate_tokens, prompt_tokens, said
from anabranch._budget import Account, BudgetError, Limits, Reservation
from anabranch._telemetry import report_turn_tokens
from anabranch.errors import AnabranchError
from anabranch.messages import SampleReply, SampleRequest, Usage
from anabranch.tree import Node, TreeStore, is_said

logger: logging.Logger = logging.getLogger("anabranch.agents")

ESTIMATE = "estimate"
"""In a node: the estimated tokens and cost of requests without a provider's report."""


@dataclass(frozen=True, slots=True)
class Spent:
    tokens: int = 0
    cost: float = 0.0
    branches: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.tokens + other.tokens, self.cost + other.cost, self.branches + other.branches
        )


@dataclass(frozen=True, slots=True)
class Charge:
    """The cost of a reply, ``None`` if unknown; an estimate if a limited turn got no reported usage."""

    cost: float | None = None
    estimate: Spent | None = None

    @property
    def data(self) -> dict[str, JsonValue]:
        data: dict[str, JsonValue] = {} if self.cost is None else {"cost": self.cost}
        if (estimate := self.estimate) is not None:
            data[ESTIMATE] = {"tokens": estimate.tokens, "cost": estimate.cost}
        return data


@dataclass(slots=True)
class UsageTotal:
    """The usage of requests whose replies no node stores; ``None`` while unknown."""

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
    def __init__(self) -> None:
        self._by_use: dict[str, UsageTotal] = {}

    def of(self, tool_use_id: str) -> UsageTotal:
        return self._by_use.setdefault(tool_use_id, UsageTotal())

    def take(self) -> tuple[Usage | None, dict[str, JsonValue]]:
        """Return the usage and data that the next node stores, and start again at zero."""
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


async def spent_in_turn(store: TreeStore, node: Node) -> Spent:
    tree = await store.tree(node.thread_id)
    known = {each.id: each for each in tree.nodes}
    path = [node]
    while not is_said(path[-1]) and (above := known.get(path[-1].parent_id or "")) is not None:
        path.append(above)
    on_path = {each.id for each in path if not is_said(each)}
    inside = set[str]()
    for each in tree.nodes:  # parents come before children
        is_first = each.parent_id in on_path and (
            each.parent_id == node.id or each.kind == "branch"
        )
        if (is_first or each.parent_id in inside) and not is_said(each):
            inside.add(each.id)
    return _sum(each for each in tree.nodes if each.id in on_path | inside)


def _sum(nodes: Iterable[Node]) -> Spent:
    total = Spent()
    for node in nodes:
        estimate = cast("dict[str, Any]", node.data.get(ESTIMATE) or {})
        tokens = 0 if node.usage is None else node.usage.total_tokens
        total += Spent(
            tokens + int(estimate.get("tokens", 0)),
            float(cast("float", node.data.get("cost", 0.0))) + float(estimate.get("cost", 0.0)),
            branches=node.kind == "branch",
        )
    return total


Price: TypeAlias = Callable[[str, Usage], float]
"""Returns the cost of a reply, in any currency, from the model's name and the reply's usage."""


class TurnLimitError(AnabranchError):
    """A turn has reached one of its limits; the tree keeps all nodes that the turn stored.

    Attributes:
        used: the usage of the turn.
        limit: the limit.
        needed: the least that the next request would add; 0 if the limit is reached.
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
        max_requests: maximum consecutive requests to the model on one path.
        max_tokens: maximum tokens of all requests, including requests of tools, as the provider
            reports them or else as estimated.
        max_cost: maximum cost of all requests, in the currency of ``price``.
        price: a function that computes the cost of a reply; without ``price``, no cost is limited.
        max_depth: maximum depth of nested branches; 0 allows none.
        max_branches: maximum branches of the turn, including nested branches.
        max_branches_per_call: maximum prompts in one call of ``branch_self``.
        timeout: maximum seconds of each branch, including its nested branches. The turn's own path
            has no deadline.
        max_concurrent_requests: maximum requests to the model at the same time.
        max_reply_tokens: maximum tokens of one reply.
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
        """Return the limits of a turn: the values of ``limits``, and defaults for other fields."""
        given = {name: value for name, value in asdict(limits).items() if value is not None}
        return cls(**given)


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A request with ``max_tokens`` reduced to the remaining tokens; ``settle`` counts its reply."""

    request: SampleRequest
    settle: Callable[[SampleReply], Awaitable[Charge]]


@dataclass(slots=True)
class Meter:
    """The meter of a turn and its branches; ``earlier`` is ``None`` for a new turn."""

    limits: TurnLimits
    earlier: Callable[[], Awaitable[Spent]] | None = None
    account: Account = field(init=False)
    _requests: asyncio.Semaphore = field(init=False)
    _reading: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _branches: int = 0
    _priced: str | None = None

    def __post_init__(self) -> None:
        limits = self.limits
        self.account = Account("turn", max_tokens=limits.max_tokens, max_cost=limits.max_cost)
        self._requests = asyncio.Semaphore(limits.max_concurrent_requests)

    async def _count_earlier(self) -> None:
        async with self._reading:
            if self.earlier is not None:
                spent, self.earlier = await self.earlier(), None
                self.account.tokens += spent.tokens
                self.account.cost += spent.cost
                self._branches += spent.branches

    async def open_branches(self, count: int) -> None:
        await self._count_earlier()
        limit = self.limits.max_branches
        if self._branches + count > limit:
            raise TurnLimitError("branches", self._branches, limit)
        self._branches += count

    @asynccontextmanager
    async def admitted(self, request: SampleRequest) -> AsyncGenerator[AdmittedRequest]:
        """Wait until the turn has tokens for ``request``; free the tokens that no reply used.

        The request waits for others while the rest of their reservations may be enough for it.
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
