"""Open asks: the questions and sleeps of one run that wait for an answer, and the task of each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from anabranch._aio import Clock, Timer
from anabranch._engine.journal import Ask, AskKind, Entry, Journal


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

    def ids(self, *kinds: AskKind) -> list[str]:
        return [step_id for step_id, opened in self._open.items() if opened.ask.kind in kinds]

    def asks(self) -> tuple[Ask, ...]:
        asks = (opened.ask for opened in self._open.values())
        return tuple(ask for ask in asks if ask.is_question)

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
    ends = [until for _, until in sleeps]
    for path, due in journal.deadlines.items():
        if due is not None and any(step_id.startswith(f"{path}/") for step_id, _ in sleeps):
            # The call would sleep beyond the deadline: test_the_deadline_of_a_branch_ends_a_sleep_in_it.
            ends.append(due)
    return min(ends, default=None)


def take_late(journal: Journal, now: float) -> dict[str, Entry]:
    """Remove and return the newest answers of ``journal`` if the time of an open sleep has passed.

    The body resumes from the sleep first, as it would have done in a process that stayed alive.
    """
    latest, journal.latest = journal.latest, []
    if not any(until <= now for _, until in _sleeps(journal)):
        return {}
    late = {each: journal.entries.pop(each) for each in latest if each in journal.entries}
    journal.pending.update({each: (entry.kind, entry.fingerprint) for each, entry in late.items()})
    return late


def hold_sleeps(journal: Journal) -> None:
    """Let no sleep of ``journal`` end before the body gets the newest answers, if any."""
    if journal.latest:
        journal.latest.clear()
        journal.held = [step_id for step_id, _ in _sleeps(journal)]


def _sleeps(journal: Journal) -> list[tuple[str, float]]:
    pending = journal.pending.items()
    return [(step_id, float(asked)) for step_id, (kind, asked) in pending if kind == "sleep"]


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
