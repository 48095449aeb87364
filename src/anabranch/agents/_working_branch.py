"""The branch of context folding in which a model works, with its remaining tokens and time.

A token counts once, when it enters the branch's context: earlier conversation costs nothing. The
turn's limits count all tokens of all requests.

The branch's record has the settled tokens. Requests without a reply die with this process, so this
module holds their reservations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial

from anabranch._asking import estimate_tokens, prompt_tokens, said, usage_tokens
from anabranch._budget import Account, BudgetError, Reservation
from anabranch.agents._turn_limits import AdmittedRequest, Charge, Meter, TurnLimitError
from anabranch.errors import BranchTokenError, StoreError
from anabranch.folding import (
    Branch,
    BranchNotActiveError,
    BranchService,
    BudgetExhaustedError,
    CreatedBranch,
    FoldingError,
    warning_of,
)
from anabranch.messages import SampleReply, SampleRequest, TextBlock, Usage
from anabranch.tree import Node, Result

BRANCH_RETURN = "branch_return"

REFUSALS = (TurnLimitError, BranchTokenError, BranchNotActiveError)


@dataclass(frozen=True, slots=True)
class _Admission:
    prompt: int
    new: int
    aside: bool
    reserved: Reservation


class WorkingBranch:
    """The open branch of ``service`` in which a model works.

    Attributes:
        is_fork: whether this is a branch of ``branch_self`` inside the branch, which cannot return.
        is_summarising: whether the last request may use the tokens held back for a summary.
        rolls_back: whether even the summary leaves out the messages that the refused request added.
        has_warned: whether the model has heard on this path that most of the budget is used.
    """

    def __init__(self, service: BranchService, branch: Branch) -> None:
        self.service = service
        self.id: str = branch.id
        self._branch = branch
        self.is_fork = False
        self.is_summarising = False
        self.rolls_back: bool = False
        self.returned: str | None = None
        self.exhausted: str | None = None
        self.has_warned: bool = False
        self._estimated: int | None = None  # tokens of the context so far, by our estimate
        self._reported: int | None = None  # the same tokens, by the provider's count
        # All forks share the lock. Under it, the record and the open requests are consistent.
        self._open = Account(branch.id)
        self._lock = asyncio.Lock()

    @property
    def seconds_left(self) -> float:
        return self.service.seconds_left(self._branch)

    def fork(self) -> WorkingBranch:
        fork = copy(self)
        fork.is_fork = True
        return fork

    async def warning(self) -> str | None:
        """Return the warning about the budget once, and later if the store does not answer now."""
        if self.has_warned:
            return None
        self.has_warned = True  # other tools may return before the store answers
        line: str | None = None
        try:
            with suppress(StoreError, FoldingError):
                branch = await self.service.status(branch_id=self.id)
                line = None if branch is None else warning_of(branch)
        finally:
            self.has_warned = line is not None
        if line is not None and self.is_fork:
            line = line.replace(f", and call {BRANCH_RETURN}", "")
        return None if line is None else f"(Of this branch's budget, {line})"

    @asynccontextmanager
    async def admitted(
        self, request: SampleRequest, meter: Meter, *, aside: bool = False
    ) -> AsyncGenerator[AdmittedRequest]:
        """Wait until the budget and ``meter`` allow ``request``, whose whole prompt is new if ``aside``.

        The request waits for others while the rest of their reservations may be enough for it.
        """
        prompt = prompt_tokens(request)
        new = prompt if aside else self._new_in(prompt)
        admission = await self._reserve(prompt, new, request.max_tokens, aside=aside)
        most = admission.reserved.tokens - new
        try:
            async with meter.admitted(request.model_copy(update={"max_tokens": most})) as outer:
                settle = partial(self._settle, admission, outer)
                yield AdmittedRequest(outer.request, settle)
        finally:
            admission.reserved.release()

    async def create(self, creating: Callable[..., Awaitable[CreatedBranch]]) -> CreatedBranch:
        while True:
            async with self._lock:
                try:
                    return await creating(parent_reserved=self._open.reserved)
                except BudgetExhaustedError:
                    if not self._open.reserved:
                        raise
            await self._open.changed()

    def _new_in(self, prompt: int) -> int:
        return 0 if self._estimated is None else max(0, prompt - self._estimated)

    async def _reserve(self, prompt: int, new: int, most: int, *, aside: bool) -> _Admission:
        while True:
            async with self._lock:
                branch = await self.service.status(branch_id=self.id)
                if branch is None or branch.status != "active":
                    status = "gone" if branch is None else branch.status
                    raise BranchNotActiveError(self.id, status)
                held_back = int(branch.budget_total * self.service.settings.summary_budget_ratio)
                account = Account(
                    self.id,
                    max_tokens=branch.budget_total - self._withheld(held_back),
                    tokens=branch.budget_used,
                    reserved=branch.budget_reserved + self._open.reserved,
                )
                if not self._open.reserved or not account.is_busy(new + most):
                    try:
                        reserved = account.reserve(new + 1, new + most)
                    except BudgetError as refusal:
                        if not aside:
                            self._note_refusal(branch, new, held_back)
                        budget = account.max_tokens or 0
                        raise BranchTokenError(self.id, refusal.wanted, budget) from None
                    reserved.hold_in(self._open)
                    return _Admission(prompt, new, aside, reserved)
            await self._open.changed()

    def _withheld(self, held_back: int) -> int:
        """Return the tokens held back for summaries; a fork leaves half of them to the branch."""
        if not self.is_summarising:
            return held_back
        return held_back // 2 if self.is_fork else 0

    def _note_refusal(self, branch: Branch, new: int, held_back: int) -> None:
        used, total = branch.budget_used, branch.budget_total
        self.rolls_back = new + held_back // 2 > branch.budget_remaining
        self.exhausted = (
            f"budget exhausted: {used}/{total} tokens, and the next request needs {new + 1} more"
        )

    async def _settle(
        self, admission: _Admission, outer: AdmittedRequest, reply: SampleReply
    ) -> Charge:
        charge = await outer.settle(reply)
        if admission.aside:
            tokens, partial = usage_tokens(admission.prompt, reply), None
        else:
            tokens, partial = self._added(admission, reply), reply.text
        async with self._lock:
            partial = None if self.is_fork else partial
            # A used-up budget does not close the branch here: the reply may be its return, and the
            # next request is refused.
            with suppress(BranchNotActiveError):  # closed meanwhile; the next request finds that
                await self.service.charge(tokens, branch_id=self.id, partial=partial, forces=False)
            admission.reserved.release()
        return charge

    def _added(self, admission: _Admission, reply: SampleReply) -> int:
        usage, new = _reported(reply), admission.new
        if usage is not None and self._reported is not None:
            new = max(0, usage.input_tokens - self._reported)
        return new + self._seen(admission.prompt, reply)

    def continue_from(self, request: SampleRequest, reply: Node) -> None:
        """Note ``request`` and ``reply`` of an earlier process, which has charged both."""
        replied = SampleReply(content=reply.content, model="", usage=reply.usage)
        self._seen(prompt_tokens(request), replied)

    def _seen(self, prompt: int, reply: SampleReply) -> int:
        usage = _reported(reply)
        output = estimate_tokens(said(reply)) if usage is None else usage.output_tokens
        self._estimated = prompt + output
        self._reported = None if usage is None else usage.total_tokens
        return output


def warns(result: Result) -> bool:
    content = result.pending or result.content
    return any(isinstance(block, TextBlock) and block.mark == "budget" for block in content)


def _reported(reply: SampleReply) -> Usage | None:
    return reply.usage if reply.usage and reply.usage.total_tokens else None
