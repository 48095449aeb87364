"""Errors of context folding, and the checks of texts and ids that raise them.

Each error has a stable code, and a sentence that a model can act on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeAlias

from anabranch.errors import AnabranchError
from anabranch.folding._settings import FoldingSettings

logger: logging.Logger = logging.getLogger("anabranch.folding")

Scrubber: TypeAlias = Callable[[str], Awaitable[str]]
"""A function that returns a text without secrets. If it raises, the text is withheld."""

MAX_ID = 200
"""Maximum characters of an id that a caller gives."""
_CODES: Mapping[tuple[str, bool], str] = {
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
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


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


class BranchTexts:
    """Checks and cleans texts; refuses a text whose search for secrets fails."""

    def __init__(self, settings: FoldingSettings, scrub: Scrubber | None) -> None:
        self._settings = settings
        self._scrub = scrub

    async def checked(self, field: str, text: str, limit: int) -> str:
        clean = _CONTROL.sub("", text)
        if not clean.strip() or len(clean) > limit:
            raise _unfit(field, clean, limit)
        return await self.scrubbed(field, clean)

    async def draft(self, partial: str | None) -> str | None:
        clean = _CONTROL.sub("", partial or "")[: self._settings.max_message_length]
        return await self.scrubbed("partial", clean) if clean.strip() else None

    async def scrubbed(self, field: str, text: str) -> str:
        if self._scrub is None:
            return text
        try:
            return await self._scrub(text)
        except Exception:
            logger.exception("the %s of a branch could not be searched for secrets", field)
            raise FoldingError(
                "FOLD014",
                f"The {field} could not be searched for secrets, and was refused. Try again; the"
                " server's log has the reason.",
            ) from None


def checked_id(field: str, given: str | None) -> str | None:
    if given is None:
        return None
    if not given.strip() or len(given) > MAX_ID:
        name = "session_id" if field == "session_id" else "branch_id"
        raise _unfit(name, given, MAX_ID)
    return given


def _unfit(field: str, text: str, limit: int) -> FoldingError:
    length = len(text) if text.strip() else 0
    problem = f"has {length} characters" if length > limit else "is empty"
    must = f"it must have 1 to {limit} characters that are not blank"
    return FoldingError(_CODES[field, length > limit], f"{field} {problem}; {must}.")
