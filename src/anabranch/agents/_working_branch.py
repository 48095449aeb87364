"""A branch of context folding in which a timeline of an agent works: what it may still use.

A token counts once, when it enters the branch's context: of each request only what the one before it
did not have, and the reply. So a long conversation before the branch does not use up its budget. What
all requests send is limited by the turn.
"""

from __future__ import annotations

from copy import copy

from anabranch._asking.tokens import estimate_tokens, prompt_tokens, said
from anabranch.errors import BranchTokenError
from anabranch.folding import Branch, BranchNotActiveError, BranchService
from anabranch.messages import SampleReply, SampleRequest

__all__ = ["WorkingBranch"]


class WorkingBranch:
    """An open branch of ``service``, as the agent that works in it sees it.

    Attributes:
        service: has its record.
        id: its id.
        is_fork: whether this is a branch of ``branch_self`` inside of it, which cannot return from it.
        is_summarising: whether its last request may use what is held back for that.
        rolls_back: whether even that has no room for what the request that was refused had added.
        returned: the message with which it has returned, ``None`` before.
        exhausted: why no further request was admitted, ``None`` if none was refused.
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
        self._estimated: int | None = None  # tokens of the context so far, by our estimate
        self._reported: int | None = None  # and as the provider has counted them
        self._prompt = 0

    @property
    def seconds_left(self) -> float:
        """The time that it has left."""
        return self.service.seconds_left(self._branch)

    def fork(self) -> WorkingBranch:
        """Return this for a branch of ``branch_self``: with the same budget, and a path of its own."""
        fork = copy(self)
        fork.is_fork = True
        return fork

    async def admitted(self, request: SampleRequest) -> SampleRequest:
        """Return the request with what is left as its ``max_tokens``.

        Raises:
            BranchTokenError: the budget does not hold it.
            BranchNotActiveError: the branch was closed meanwhile.
        """
        branch = await self.service.status(branch_id=self.id)
        if branch is None or branch.status != "active":
            raise BranchNotActiveError(self.id, "gone" if branch is None else branch.status)
        self._prompt = prompt_tokens(request)
        seen = self._prompt if self._estimated is None else self._estimated
        new = max(0, self._prompt - seen)
        held_back = int(branch.budget_total * self.service.settings.summary_budget_ratio)
        free = branch.budget_remaining - (0 if self.is_summarising else held_back)
        if new + 1 > free:
            self.rolls_back = new + held_back // 2 > branch.budget_remaining
            used, total = branch.budget_used, branch.budget_total
            self.exhausted = f"budget exhausted: {used}/{total} tokens, and the next request needs {new + 1} more"
            raise BranchTokenError(self.id, used + new + 1, total)
        return request.model_copy(update={"max_tokens": min(request.max_tokens, free - new)})

    async def charge(self, reply: SampleReply) -> None:
        """Charge the reply to the request that was admitted last, and what was new in that."""
        usage = reply.usage if reply.usage and reply.usage.total_tokens else None
        output = estimate_tokens(said(reply)) if usage is None else usage.output_tokens
        new = 0
        if usage is not None and self._reported is not None:
            new = max(0, usage.input_tokens - self._reported)
        elif self._estimated is not None:
            new = max(0, self._prompt - self._estimated)
        self._estimated = self._prompt + output
        self._reported = None if usage is None else usage.total_tokens
        await self.spend(new + output, reply.text)

    async def spend(self, tokens: int, partial: str | None = None) -> None:
        """Charge tokens; ``partial`` is what the branch has said last.

        It is not closed here, even if its budget is used up: the reply may be its return, and the
        next request will not be admitted.
        """
        try:
            await self.service.charge(
                tokens, branch_id=self.id, partial=None if self.is_fork else partial, forces=False
            )
        except BranchNotActiveError:
            return  # it was closed meanwhile, which its next request will find
