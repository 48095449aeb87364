"""The measure of progress of a call whose rounds are cut off.

A round that is cut off does the same work again in the next one. That is legal, and of no use if
it never comes further.
"""

from __future__ import annotations

import logging
from pathlib import PurePath

from anabranch._engine.journal import Journal
from anabranch._engine.quiescence import Quiet
from anabranch.errors import NoProgressError

STALLED = 3
"""How many rounds in a row may be cut off without a new answer, question or entry."""

logger: logging.Logger = logging.getLogger("anabranch.engine")


class Progress:
    """What one round of the call of ``tool`` adds to ``journal``."""

    def __init__(self, journal: Journal, tool: str) -> None:
        self._journal = journal
        self._tool = tool
        self._before = self._known()

    def _known(self) -> tuple[list[str], list[str]]:
        return list(self._journal.entries), list(self._journal.pending)

    def check(self, quiet: Quiet) -> NoProgressError | None:
        """Report a round that was cut off; return the error if there were too many."""
        journal = self._journal
        if quiet.cut_off is None:
            journal.stalled = 0
            return None
        logger.warning(
            "tool %r, call %r: a question was open, and %s was busy for too long; the round was"
            " cut off, and this work is done again in the next one. Put it into ctx.step, or raise"
            " patience=.",
            self._tool,
            journal.line,
            quiet.cut_off,
        )
        known = [set(now) for now in self._known()]
        same = known == [set(before) for before in self._before]
        journal.stalled = journal.stalled + 1 if same else 0
        if journal.stalled < STALLED:
            return None
        # The caller may read the error; the server's directories are not for the caller.
        place = PurePath(quiet.cut_off).name
        return NoProgressError(list(journal.pending), place, journal.stalled)
