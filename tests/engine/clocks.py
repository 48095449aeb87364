"""A clock for what waits by the clock: no test waits for real time."""

import asyncio
from collections.abc import Callable
from typing import Any

from anabranch._aio import Timer
from anabranch._engine.branch import Deadline
from anabranch.testing import ManualClock

PASSES = 20
"""Passes of the loop in which what happens at the same time happens, before time goes on."""


class Obliging(ManualClock):
    """A clock that moves only when it is waited for, and by as much: work takes no time.

    It stops at each timer on its way, and moves no further for one that was cancelled meanwhile.
    """

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        timer = super().call_at(when, callback)
        if self.obliges(callback):
            self._move(timer, when, PASSES)
        return timer

    def obliges(self, callback: Callable[[], None]) -> bool:
        """Whether the clock moves for this timer; not for one that only limits what goes on."""
        return not isinstance(getattr(callback, "__self__", None), Deadline)

    def _move(self, timer: Any, when: float, passes: int) -> None:
        if timer.cancelled or self.now() >= when:
            return
        if not passes:
            ahead = min(each.when for each in self._alarms if not each.cancelled)
            self.advance(ahead - self.now())
            passes = PASSES
        asyncio.get_running_loop().call_soon(self._move, timer, when, passes - 1)
