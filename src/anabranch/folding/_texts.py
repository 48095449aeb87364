"""Checks the texts of branches, and removes control characters and secrets."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from anabranch.folding._errors import FoldingError
from anabranch.folding._memory import Scrubber
from anabranch.folding._settings import FoldingSettings

logger: logging.Logger = logging.getLogger("anabranch.folding")

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
