"""Asks a question again if a deployment has changed its words; refuses answers to the old words.

The question of an answer that no body has read may change as well: the client answered the old
words. All other entries depend on the code, and a change there is drift.
"""

from __future__ import annotations

from collections import Counter

from anabranch._engine.journal import Entry, Journal

REFUSED = "refused"
"""The kind of an entry with a refused answer, whose question is asked again as a new attempt."""

REFUSALS = 3
"""Maximum refused answers to one question. A question that differs once more never stays the same."""

_QUESTIONS = frozenset({"sample", "elicit", "url", "call"})


class Wordings:
    """Compares the questions of ``journal`` with those of one run."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._first: dict[str, str] = {}
        self._refused: Counter[str] = Counter()

    def repeat(self, step_id: str, again: str) -> None:
        self._first[again] = step_id

    def is_other(self, step_id: str, kind: str, asked: str) -> bool:
        """Return whether the ask open at ``step_id`` differs from the one that the run makes."""
        return self._journal.pending.get(step_id, (kind, asked)) != (kind, asked)

    def refuses(self, step_id: str, kind: str, entry: Entry) -> bool:
        """Return whether to ask again, because ``entry`` answers another wording of the question."""
        first = self._first.get(step_id, step_id)
        # A step has no words, so a question in its place is drift:
        # test_a_step_may_take_the_place_of_an_open_question_and_not_of_an_answer.
        if kind not in _QUESTIONS:
            return False
        if entry.kind != REFUSED:
            # A body has acted on a read answer, so its question is pinned
            # (test_an_answer_read_by_the_body_pins_its_question). Without the maximum, a question with
            # a clock in it would be asked for ever (test_a_question_with_changing_words_is_a_difference).
            if step_id not in self._journal.unread or self._refused[first] == REFUSALS:
                return False
            self.refuse(step_id, entry)
        self._refused[first] += 1
        return True

    def refuse(self, step_id: str, entry: Entry) -> None:
        """Make ``entry`` a refused answer, now and in every replay."""
        self._journal.unread.discard(step_id)
        entry.kind, entry.error = REFUSED, None
