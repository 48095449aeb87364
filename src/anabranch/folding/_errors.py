"""Errors of context folding: each has a stable code, and a sentence that a model can act on.

The codes come from the design that this package implements; codes that cannot occur here are
missing. ``kind`` names the party that must act: ``user`` the caller, ``system`` the operator,
``retryable`` no party, since a later attempt may succeed. ``not_found`` and ``authorization`` mean
what they say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, TypeAlias

from anabranch.errors import AnabranchError

ErrorKind: TypeAlias = Literal["user", "retryable", "not_found", "authorization", "system"]
"""The party that must act, or the kind of refusal."""


class FoldingError(AnabranchError):
    """An operation on a branch is refused; nothing has changed.

    Attributes:
        code: ``FOLD`` and three digits; the message begins with it.
        kind: the party that must act.
    """

    code: str = ""
    kind: ClassVar[ErrorKind] = "user"

    def __init__(self, message: str, /, **facts: object) -> None:
        super().__init__(f"{self.code}: {message}", **facts)


class UnknownBranchError(FoldingError):
    """No branch has this id, or it was deleted."""

    code: str = "FOLD001"
    kind: ClassVar[ErrorKind] = "not_found"

    def __init__(self, branch_id: str) -> None:
        super().__init__(
            f"There is no branch {branch_id!r}. Use the branch_id that branch_create has returned.",
            branch_id=branch_id,
        )


class BranchNotActiveError(FoldingError):
    """The branch has ended."""

    code: str = "FOLD003"

    def __init__(self, branch_id: str, status: str) -> None:
        super().__init__(
            f"Branch {branch_id!r} is {status}, not active. Its result is in branch_status; create"
            " another branch to continue.",
            branch_id=branch_id,
            status=status,
        )


class FoldingDepthError(FoldingError):
    """The branch would be nested too deeply."""

    code: str = "FOLD004"

    def __init__(self, depth: int, max_depth: int) -> None:
        super().__init__(
            f"A branch at depth {depth} is deeper than max_depth={max_depth}. Do the subtask here, or"
            " return from this branch first.",
            depth=depth,
            max_depth=max_depth,
        )


class TransitionError(FoldingError):
    """One state may not follow another."""

    code: str = "FOLD005"
    kind: ClassVar[ErrorKind] = "system"

    def __init__(self, branch_id: str, status: str, wanted: str) -> None:
        super().__init__(
            f"Branch {branch_id!r} cannot go from {status} to {wanted}.",
            branch_id=branch_id,
            status=status,
            wanted=wanted,
        )


class NoActiveBranchError(FoldingError):
    """No branch is active, so the root has nowhere to return to."""

    code: str = "FOLD006"

    def __init__(self, session_id: str | None) -> None:
        where = "This session" if session_id else "Without session_id or branch_id, the caller"
        super().__init__(
            f"{where} has no active branch to return from. Create one with branch_create, or answer"
            " directly.",
            session_id=session_id,
        )


class BudgetExhaustedError(FoldingError):
    """The parent or the session has fewer tokens left than the branch wants."""

    code: str = "FOLD008"
    kind: ClassVar[ErrorKind] = "retryable"

    def __init__(self, holder: str, wanted: int, remaining: int) -> None:
        super().__init__(
            f"{holder} has {remaining} tokens left, and {wanted} are wanted. Ask for a smaller"
            " budget, or wait until an open branch returns what it does not use.",
            holder=holder,
            wanted=wanted,
            remaining=remaining,
        )


class InvalidBudgetError(FoldingError):
    """A number of tokens is out of range."""

    code: str = "FOLD010"

    def __init__(self, what: str, tokens: int, least: int, most: int | None) -> None:
        upper = "" if most is None else f" and at most {most}"
        super().__init__(
            f"{what} is {tokens}; it must be at least {least}{upper} tokens.", tokens=tokens
        )


class CreationRateError(FoldingError):
    """Branches are created too fast."""

    code: str = "FOLD012"
    kind: ClassVar[ErrorKind] = "retryable"

    def __init__(self, per_minute: int, seconds: float) -> None:
        super().__init__(
            f"This session may create {per_minute} branches per minute. Try again in"
            f" {max(1, round(seconds))} s, or do the subtask here.",
            per_minute=per_minute,
        )


class TooManyBranchesError(FoldingError):
    """Too many branches are open at the same time."""

    code: str = "FOLD013"
    kind: ClassVar[ErrorKind] = "retryable"

    def __init__(self, scope: Literal["session", "caller", "instance"], limit: int) -> None:
        super().__init__(
            f"The {scope} has {limit} branches open, which is the limit. Return from one of them"
            " first, or do the subtask here.",
            scope=scope,
            limit=limit,
        )


class ScrubbingError(FoldingError):
    """A text cannot leave its branch, because the search for secrets failed."""

    code: str = "FOLD014"
    kind: ClassVar[ErrorKind] = "system"

    def __init__(self, field: str) -> None:
        super().__init__(
            f"The {field} could not be searched for secrets, and was refused. Try again; the"
            " server's log has the reason.",
            field=field,
        )


TEXT_CODES: Mapping[tuple[str, bool], str] = {
    ("session_id", False): "FOLD015",
    ("description", False): "FOLD016",
    ("description", True): "FOLD017",
    ("prompt", False): "FOLD018",
    ("prompt", True): "FOLD019",
    ("branch_id", False): "FOLD020",
    ("message", True): "FOLD021",
    ("message", False): "FOLD024",
    ("session_id", True): "FOLD026",
    ("branch_id", True): "FOLD027",
}
"""The code for each field, by whether it is too long, or else empty."""


class InvalidTextError(FoldingError):
    """A text is empty, or too long."""

    def __init__(self, field: str, length: int, limit: int) -> None:
        self.code: str = TEXT_CODES[field, length > limit]
        problem = "is empty" if length <= limit else f"has {length} characters"
        super().__init__(
            f"{field} {problem}; it must have 1 to {limit} characters that are not blank.",
            field=field,
            length=length,
            limit=limit,
        )


class SessionMismatchError(FoldingError):
    """The branch belongs to another session."""

    code: str = "FOLD022"
    kind: ClassVar[ErrorKind] = "authorization"

    def __init__(self, branch_id: str) -> None:
        super().__init__(
            f"Branch {branch_id!r} does not belong to this session. Leave out session_id, or use the"
            " one that branch_create has returned with it.",
            branch_id=branch_id,
        )


class InvalidTimeoutError(FoldingError):
    """A timeout is out of range."""

    code: str = "FOLD023"

    def __init__(self, seconds: float, most: float) -> None:
        super().__init__(
            f"timeout_seconds is {seconds:g}; it must be more than 0 and at most {most:g}.",
            seconds=seconds,
            most=most,
        )
