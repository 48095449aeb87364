"""A branch: a timeline inside a call, with limits that only narrow.

Its account counts tokens against its own budget and those of all branches around it; when a request
is admitted is decided by the replay cursor. Running a branch is in ``folding.py``; its messages are
the author's view and live in ``context.py``.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch._budget import Account, Limits
from anabranch._engine.deadline import Deadline
from anabranch.errors import BranchDepthError


class Branch:
    """One branch of a running call.

    Attributes:
        parent: the branch that it is in; ``None`` for the call's root.
        path: its name within the call.
        depth: how many branches are around it.
        tool_depth: the depth of the tool that it is in, from which its sites count ``max_depth``.
        limits: the tightest of all that enclose it; ``timeout`` is its own.
        account: what it has spent, its sub-branches included, within its own budget.
        deadline: what enforces its timeout, while its body runs.
        ids: what is recorded inside: steps, and sub-branches that were folded.
        noticed: scope paths inside from which notices were sent.
    """

    __slots__ = (
        "account", "deadline", "depth", "ids", "limits", "noticed", "parent", "path",
        "timeout", "tool_depth",
    )  # fmt: skip

    def __init__(
        self,
        parent: Branch | None,
        path: str,
        own: Limits,
        spent: int = 0,
        *,
        is_tool: bool = False,
    ) -> None:
        outer = None if parent is None else parent.account
        self.parent: Branch | None = parent
        self.path: str = path
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.tool_depth: int = self.depth if parent is None or is_tool else parent.tool_depth
        if self.tool_depth and own.max_depth is not None:
            own = replace(own, max_depth=self.tool_depth + own.max_depth)
        self.limits: Limits = own if parent is None else parent.limits.narrowed(own)
        self.timeout: float | None = own.timeout
        self.account: Account = Account(path, outer, max_tokens=own.max_tokens, tokens=spent)
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
