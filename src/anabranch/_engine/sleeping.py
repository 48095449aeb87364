"""Sleeps: asks that are answered by the clock, when their time has come, and by nothing else.

What a sleep asks is its time, so the journal of a call says when the call goes on by itself. Between
rounds nothing waits: the round that is run when the clock is past the time answers the sleep. An
answer that comes in the same round has come later than the clock; the body sees it later, too. Where
it is known that it came before, the sleep is held until the round after.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from anabranch._aio import Clock, Timer
from anabranch._engine.journal import Ask, Entry, Journal


def asked_time(until: float) -> str:
    """Return what a sleep until then asks, which stands for its fingerprint."""
    return repr(until)


def is_asleep(journal: Journal) -> bool:
    """Whether the call has an open sleep and no open question: no one but the clock continues it."""
    return bool(journal.pending) and not journal.questions


def wakes_at(journal: Journal) -> float | None:
    """Return when the first open sleep ends, ``None`` if there is none.

    A branch around a sleep that must be done sooner ends it sooner.
    """
    sleeps = _sleeps(journal)
    ends = [until for _, until in sleeps]
    for path, due in journal.deadlines.items():
        if due is not None and any(step_id.startswith(f"{path}/") for step_id, _ in sleeps):
            ends.append(due)
    return min(ends, default=None)


def take_late(journal: Journal, now: float) -> dict[str, Entry]:
    """Take the answers that a round begins with out of ``journal`` if an open sleep has ended.

    The body goes on from the sleep first, as it would have done if it were still alive then.
    """
    latest, journal.latest = journal.latest, []
    if not any(until <= now for _, until in _sleeps(journal)):
        return {}
    late = {each: journal.entries.pop(each) for each in latest if each in journal.entries}
    journal.pending.update({each: (entry.kind, entry.fingerprint) for each, entry in late.items()})
    return late


def hold_sleeps(journal: Journal) -> None:
    """Have the answers that a round begins with, if any, come before its sleeps end."""
    if journal.latest:
        journal.latest.clear()
        journal.held = [step_id for step_id, _ in _sleeps(journal)]


def _sleeps(journal: Journal) -> list[tuple[str, float]]:
    pending = journal.pending.items()
    return [(step_id, float(asked)) for step_id, (kind, asked) in pending if kind == "sleep"]


class Alarm:
    """Calls ``wake`` once ``clock`` has reached the time of the sleep ``ask``; at once if it has."""

    def __init__(self, clock: Clock, ask: Ask, wake: Callable[[Ask], object]) -> None:
        self._clock = clock
        self._ring = partial(self._check, ask, wake)
        self._timer: Timer | None = None
        self._ring()

    def _check(self, ask: Ask, wake: Callable[[Ask], object]) -> None:
        if self._clock.now() >= ask.request:
            wake(ask)
        else:  # also when a timer was early: wall clocks are set back
            self._timer = self._clock.call_at(ask.request, self._ring)

    def cancel(self) -> None:
        """Make sure that it does not call any more."""
        if self._timer is not None:
            self._timer.cancel()
