"""A manual clock that advances when a task waits for it, so that no test waits for real time."""

import asyncio
from collections.abc import Callable
from typing import Any

from anabranch._aio import Timer
from anabranch._engine.branch import Deadline
from anabranch.testing import ManualClock

PASSES = 20
"""Passes of the event loop in which simultaneous tasks run before the clock advances."""


class Obliging(ManualClock):
    """A clock that advances only to the timers that tasks wait for; work takes no time.

    The clock stops at each timer, and does not advance for a timer that was cancelled meanwhile.
    """

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        timer = super().call_at(when, callback)
        if self.obliges(callback):
            self._move(timer, when, PASSES)
        return timer

    def obliges(self, callback: Callable[[], None]) -> bool:
        """Return whether the clock advances for this timer; it does not for a timer that only limits work."""
        return not isinstance(getattr(callback, "__self__", None), Deadline)

    def _move(self, timer: Any, when: float, passes: int) -> None:
        if timer.cancelled or self.now() >= when:
            return
        if not passes:
            ahead = min(each.when for each in self._alarms if not each.cancelled)
            self.advance(ahead - self.now())
            passes = PASSES
        asyncio.get_running_loop().call_soon(self._move, timer, when, passes - 1)
