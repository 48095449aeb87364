"""A branch: a timeline inside a call, with limits that only narrow.

It counts tokens against its own budget and those of all branches around it. What earlier rounds
have spent counts from the first moment, in whatever order a replay passes the recorded steps: so a
replay refuses nothing that was once allowed, and allows nothing that was once refused. Running a
branch is in ``folding.py``; its messages are the author's view and live in ``context.py``.
"""

from __future__ import annotations

from anabranch._engine.deadline import Deadline
from anabranch.errors import BranchDepthError, BranchTokenError
from anabranch.limits import Limits

__all__ = ["Branch"]


class Branch:
    """One branch of a running call.

    Attributes:
        parent: the branch that it is in; ``None`` for the call's root.
        path: its name within the call.
        depth: how many branches are around it.
        limits: the tightest of all that enclose it; ``max_tokens`` and ``timeout`` are its own.
        spent: tokens charged to it so far, those of its sub-branches included.
        deadline: what enforces its timeout, while its body runs.
        ids: what is recorded inside: steps, and sub-branches that were folded.
        noticed: scope paths inside from which notices were sent.
    """

    __slots__ = (
        "deadline", "depth", "ids", "limits", "max_tokens", "noticed", "parent", "path", "spent",
        "timeout",
    )  # fmt: skip

    def __init__(self, parent: Branch | None, path: str, own: Limits, spent: int = 0) -> None:
        self.parent: Branch | None = parent
        self.path: str = path
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.limits: Limits = own if parent is None else parent.limits.narrowed(own)
        self.max_tokens: int | None = own.max_tokens
        self.timeout: float | None = own.timeout
        self.spent: int = spent
        self.deadline: Deadline | None = None
        self.ids: list[str] = []
        self.noticed: list[str] = []

    @property
    def is_expired(self) -> bool:
        """Whether its own deadline has passed."""
        return self.deadline is not None and self.deadline.expired

    def check_depth(self) -> None:
        """Refuse to run deeper than the limits allow.

        Raises:
            BranchDepthError: naming depth and limit.
        """
        allowed = self.limits.max_depth
        if allowed is not None and self.depth > allowed:
            raise BranchDepthError(self.depth, allowed)

    def check_tokens(self, wanted: int) -> None:
        """Refuse to spend ``wanted`` tokens where any enclosing budget does not hold them.

        Raises:
            BranchTokenError: naming the innermost branch whose budget it is.
        """
        branch: Branch | None = self
        while branch is not None:
            budget = branch.max_tokens
            if budget is not None and branch.spent + wanted > budget:
                raise BranchTokenError(branch.path, branch.spent + wanted, budget)
            branch = branch.parent

    def remaining_tokens(self) -> int | None:
        """Return the least that any enclosing budget has left, ``None`` without a budget."""
        least: int | None = None
        branch: Branch | None = self
        while branch is not None:
            if branch.max_tokens is not None:
                left = max(0, branch.max_tokens - branch.spent)
                least = left if least is None else min(least, left)
            branch = branch.parent
        return least

    def charge(self, tokens: int) -> None:
        """Charge ``tokens`` to this branch and every ancestor.

        Raises:
            BranchTokenError: a budget is exceeded; the tokens stay charged.
        """
        branch: Branch | None = self
        while branch is not None:
            branch.spent += tokens
            branch = branch.parent
        self.check_tokens(0)

    async def check_deadlines(self) -> None:
        """Return if no deadline around this branch has passed; else end the running strand.

        Raises:
            asyncio.CancelledError, BranchTimeoutError: as :meth:`Deadline.stop`.
        """
        branch: Branch | None = self
        while branch is not None:
            if branch.deadline is not None and branch.deadline.expired:
                await branch.deadline.stop()
            branch = branch.parent

    def absorb(self, branch: Branch) -> None:
        """Take over what is recorded inside ``branch``, which has ended and is not folded."""
        self.ids += branch.ids
        self.noticed += (branch.path, *branch.noticed)
