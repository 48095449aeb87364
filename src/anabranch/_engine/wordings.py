"""Questions that a deployment has changed: asked again in their new words, and an answer to the old ones refused.

An open question pins no code, since nobody has answered it. An answer that no body has read pins none
either: it answers what its client was shown. Whatever a body has read or done is recorded, and pins
the code; ``cursor.py`` finds those differences.
"""

from __future__ import annotations

from collections import Counter

from anabranch._engine.journal import Entry, Journal

REFUSED = "refused"
"""The kind of an entry that holds a refused answer: its question is asked again, as a new attempt."""

REFUSALS = 3
"""How many answers to one question are refused. A question that differs once more never stays the same."""

_QUESTIONS = frozenset({"sample", "elicit", "url", "call"})


class Wordings:
    """The questions of ``journal``, compared with those of one run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._first: dict[str, str] = {}
        self._refused: Counter[str] = Counter()

    def repeat(self, step_id: str, again: str) -> None:
        """Take note that ``again`` is another attempt at the question ``step_id``."""
        self._first[again] = step_id

    def is_other(self, step_id: str, kind: str, asked: str) -> bool:
        """Return whether something else is open at ``step_id`` than what the run comes to there."""
        return self._journal.pending.get(step_id, (kind, asked)) != (kind, asked)

    def refuses(self, step_id: str, kind: str, entry: Entry) -> bool:
        """Return whether ``entry`` answers other words than the question of ``kind`` that is asked now.

        A question alone can be asked again: at the place of a step, the answer is a difference.
        """
        first = self._first.get(step_id, step_id)
        if kind not in _QUESTIONS:
            return False
        if entry.kind != REFUSED:
            if step_id not in self._journal.unread or self._refused[first] == REFUSALS:
                return False
            self.refuse(step_id, entry)
        self._refused[first] += 1
        return True

    def refuse(self, step_id: str, entry: Entry) -> None:
        """Make ``entry`` a refused answer, now and in every replay."""
        self._journal.unread.discard(step_id)
        entry.kind, entry.error = REFUSED, None
