"""Checks the texts of branches, and removes control characters and secrets."""

from __future__ import annotations

import logging
import re

from anabranch.folding._errors import InvalidTextError, ScrubbingError
from anabranch.folding._memory import Scrubber
from anabranch.folding._settings import FoldingSettings

logger: logging.Logger = logging.getLogger("anabranch.folding")

MAX_ID = 200
"""Maximum characters of an id that a caller gives."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class BranchTexts:
    """Checks and cleans texts.

    Args:
        settings: the maximum lengths.
        scrub: removes secrets; ``None`` leaves texts unchanged.
    """

    def __init__(self, settings: FoldingSettings, scrub: Scrubber | None) -> None:
        self._settings = settings
        self._scrub = scrub

    async def checked(self, field: str, text: str, limit: int) -> str:
        """Return a text without control characters and secrets.

        Raises:
            FoldingError: if the text is blank or too long, or the search for secrets failed.
        """
        clean = _CONTROL.sub("", text)
        if not clean.strip() or len(clean) > limit:
            raise InvalidTextError(field, len(clean) if clean.strip() else 0, limit)
        return await self.scrubbed(field, clean)

    async def draft(self, partial: str | None) -> str | None:
        """Return a branch's partial result without secrets, or ``None`` if it is blank.

        Raises:
            ScrubbingError: if the search for secrets failed.
        """
        clean = _CONTROL.sub("", partial or "")[: self._settings.max_message_length]
        return await self.scrubbed("partial", clean) if clean.strip() else None

    async def scrubbed(self, field: str, text: str) -> str:
        """Return a text without secrets.

        Raises:
            ScrubbingError: if the search for secrets failed.
        """
        if self._scrub is None:
            return text
        try:
            return await self._scrub(text)
        except Exception:
            logger.exception("the %s of a branch could not be searched for secrets", field)
            raise ScrubbingError(field) from None


def checked_id(field: str, given: str | None) -> str | None:
    """Return an id that a caller gives, or ``None``.

    Raises:
        InvalidTextError: if the id is blank or too long.
    """
    if given is None:
        return None
    if not given.strip() or len(given) > MAX_ID:
        name = "session_id" if field == "session_id" else "branch_id"
        raise InvalidTextError(name, len(given) if given.strip() else 0, MAX_ID)
    return given
