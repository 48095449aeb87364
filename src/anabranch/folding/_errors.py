"""Errors of context folding: each has a stable code, and a sentence that a model can act on."""

from __future__ import annotations

from typing import Literal

from anabranch.errors import AnabranchError


class FoldingError(AnabranchError):
    """An operation on a branch was refused, and changed nothing.

    Attributes:
        code: ``FOLD`` and three digits, with which the message begins.
    """

    def __init__(self, code: str, message: str, /) -> None:
        super().__init__(f"{code}: {message}")
        self.code: str = code


class UnknownBranchError(FoldingError):
    """No branch has this id, or the branch was deleted."""

    def __init__(self, branch_id: str) -> None:
        super().__init__(
            "FOLD001",
            f"There is no branch {branch_id!r}. Use the branch_id that branch_create has returned.",
        )


class BranchNotActiveError(FoldingError):
    """The operation needs an active branch, but the branch has ended."""

    def __init__(self, branch_id: str, status: str) -> None:
        super().__init__(
            "FOLD003",
            f"Branch {branch_id!r} is {status}, not active. Its result is in branch_status; create"
            " another branch to continue.",
        )


class BudgetExhaustedError(FoldingError):
    """The parent or the session of a new branch has fewer tokens left than the branch needs."""

    def __init__(self, holder: str, wanted: int, remaining: int) -> None:
        super().__init__(
            "FOLD008",
            f"{holder} has {remaining} tokens left, and {wanted} are wanted. Ask for a smaller"
            " budget, or wait until an open branch returns what it does not use.",
        )


class TooManyBranchesError(FoldingError):
    """Too many branches are open at the same time."""

    def __init__(self, scope: Literal["session", "caller", "instance"], limit: int) -> None:
        super().__init__(
            "FOLD013",
            f"The {scope} has {limit} branches open, which is the limit. Return from one of them"
            " first, or do the subtask here.",
        )


def no_active_branch(session_id: str | None) -> FoldingError:
    where = "This session" if session_id else "Without session_id or branch_id, the caller"
    return FoldingError(
        "FOLD006",
        f"{where} has no active branch to return from. Create one with branch_create, or answer"
        " directly.",
    )


def tokens_out_of_range(what: str, tokens: int, least: int, most: int | None) -> FoldingError:
    upper = "" if most is None else f" and at most {most}"
    return FoldingError(
        "FOLD010", f"{what} is {tokens}; it must be at least {least}{upper} tokens."
    )


def of_other_session(branch_id: str) -> FoldingError:
    return FoldingError(
        "FOLD022",
        f"Branch {branch_id!r} does not belong to this session. Leave out session_id, or use the"
        " one that branch_create has returned with it.",
    )
