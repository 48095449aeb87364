"""Open asks: the questions and sleeps of one run that wait for an answer, and the task of each.

A deployment may change the words of an open question, or of an answered one whose answer no body has
read. The client answered the old words, so the question is asked again. All other entries depend on
the code, and a change there is drift.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from anabranch._aio import Clock, Timer
from anabranch._engine.journal import Ask, Entry, Journal


class _Open(NamedTuple):
    ask: Ask
    future: asyncio.Future[None]
    task: asyncio.Task[Any]


class OpenAsks:
    def __init__(self) -> None:
        self._unseen: deque[Ask] = deque()
        self._open: dict[str, _Open] = {}
        self._answering: dict[str, asyncio.Task[None]] = {}

    def open(self, ask: Ask, task: asyncio.Task[Any]) -> asyncio.Future[None]:
        """Add ``ask``; the returned future is done once the ask is answered."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open[ask.step_id] = _Open(ask, future, task)
        if ask.is_question:
            self._unseen.append(ask)
        return future

    def close(self, step_id: str) -> None:
        """Remove an ask that the body no longer awaits; cancel the task that answers the ask."""
        del self._open[step_id]
        # Otherwise a form would stay open for a question that was withdrawn:
        # test_a_withdrawn_question_cancels_its_answerer.
        if (answering := self._answering.pop(step_id, None)) is not None:
            answering.cancel()

    def is_open(self, step_id: str) -> bool:
        """Whether the body still waits for a client's answer to ``step_id``."""
        return self.is_awaited(step_id) and self._open[step_id].ask.is_question

    def is_awaited(self, step_id: str) -> bool:
        opened = self._open.get(step_id)
        return opened is not None and not opened.future.done()

    def wake(self, step_id: str) -> None:
        """Wake the task that waits for the answer, which is recorded now."""
        self._open[step_id].future.set_result(None)

    def next_unseen(self) -> Ask | None:
        """Return the next open ask that was not returned before, ``None`` if there is none."""
        while self._unseen:
            ask = self._unseen.popleft()
            # A client would show a question that was withdrawn before:
            # test_a_question_withdrawn_before_it_was_read_is_not_shown.
            if self.is_open(ask.step_id):
                return ask
        return None

    def answer_with(self, step_id: str, task: asyncio.Task[None]) -> None:
        """Cancel ``task``, which is answering an open ask, when the ask is closed."""
        self._answering[step_id] = task

    def answering(self) -> list[asyncio.Task[None]]:
        return list(self._answering.values())

    def asks(self) -> tuple[Ask, ...]:
        opened = self._open.values()
        return tuple(each.ask for each in opened if each.ask.is_question)

    def by_task(self) -> dict[asyncio.Task[Any], list[str]]:
        asked: dict[asyncio.Task[Any], list[str]] = {}
        for step_id, opened in self._open.items():
            asked.setdefault(opened.task, []).append(step_id)
        return asked


def is_asleep(journal: Journal) -> bool:
    """Whether the call has an open sleep and no open question, so that only the clock resumes it."""
    return bool(journal.pending) and not journal.questions


def wakes_at(journal: Journal) -> float | None:
    """Return the end of the first open sleep, or an earlier deadline around it; ``None`` without."""
    sleeps = _sleeps(journal)
    ends = [*sleeps.values()]
    for path, due in journal.deadlines.items():
        if due is not None and any(step_id.startswith(f"{path}/") for step_id in sleeps):
            # The call would sleep beyond the deadline: test_the_deadline_of_a_branch_ends_a_sleep_in_it.
            ends.append(due)
    return min(ends, default=None)


def take_late(journal: Journal, now: float) -> dict[str, Entry]:
    """Remove and return the newest answers of ``journal`` if the time of an open sleep has passed.

    The body resumes from the sleep first, as it would have done in a process that stayed alive.
    """
    latest, journal.latest = journal.latest, []
    if min(_sleeps(journal).values(), default=math.inf) > now:
        return {}
    late = {each: journal.entries.pop(each) for each in latest if each in journal.entries}
    journal.pending.update({each: (entry.kind, entry.fingerprint) for each, entry in late.items()})
    return late


def hold_sleeps(journal: Journal) -> None:
    """Let no sleep of ``journal`` end before the body gets the newest answers, if any."""
    if journal.latest:
        journal.latest.clear()
        journal.held = [*_sleeps(journal)]


def _sleeps(journal: Journal) -> dict[str, float]:
    """Return the end of each open sleep."""
    pending = journal.pending.items()
    return {step_id: float(asked) for step_id, (kind, asked) in pending if kind == "sleep"}


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


class Alarm:
    """Calls ``wake`` as soon as ``clock`` has reached the time of the sleep ``ask``."""

    def __init__(self, clock: Clock, ask: Ask, wake: Callable[[Ask], object]) -> None:
        self._clock = clock
        self._ring = partial(self._check, ask, wake)
        self._timer: Timer | None = None
        self._ring()

    def _check(self, ask: Ask, wake: Callable[[Ask], object]) -> None:
        if self._clock.now() >= ask.request:
            wake(ask)
        else:  # a timer may be early: wall clocks are set back
            self._timer = self._clock.call_at(ask.request, self._ring)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
