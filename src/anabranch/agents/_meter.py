"""The meter of a turn: admits its requests within its limits, and counts their tokens and cost."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from anabranch._asking import ADMISSION_MARGIN, estimate_tokens, prompt_tokens, said
from anabranch._budget import Account, BudgetError, Reservation
from anabranch._telemetry import report_turn_tokens
from anabranch.agents._turn_limits import Charge, Spent, TurnLimitError, TurnLimits
from anabranch.messages import SampleReply, SampleRequest, Usage

logger: logging.Logger = logging.getLogger("anabranch.agents")


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
