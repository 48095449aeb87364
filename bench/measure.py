"""How things are measured here, and what a result is.

Two ways of doing the same work run in turns, in one process, each turn one after the other; a
ratio is the median over the turns of the ratios within a turn. So whatever else the machine does,
and whatever clock it runs at, meets both sides alike. Times are never asserted.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter

__all__ = ["Row", "Times", "time_in_turns"]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: ``value`` in ``unit``, which ought to be at most ``goal``."""

    benchmark: str
    measured: str
    value: float
    unit: str = "x"
    goal: float | None = None

    def cells(self) -> list[str]:
        """Return the line's cells as text."""
        goal = "" if self.goal is None else f"≤ {self.goal:g} {self.unit}"
        met = "" if self.goal is None else "yes" if self.value <= self.goal else "**no**"
        return [self.benchmark, self.measured, f"{self.value:.2f} {self.unit}", goal, met]


class Times:
    """Seconds that each contender took, turn by turn."""

    def __init__(self, turns: Mapping[str, list[float]]) -> None:
        self._turns = turns

    def ratio(self, one: str, other: str) -> float:
        """Return how long ``one`` took, in units of ``other``."""
        pairs = zip(self._turns[one], self._turns[other], strict=True)
        return median(mine / theirs for mine, theirs in pairs)

    def best(self, one: str) -> float:
        """Return the seconds of the fastest turn, which others disturbed least."""
        return min(self._turns[one])


async def time_in_turns(
    contenders: Mapping[str, Callable[[], Awaitable[object]]], turns: int
) -> Times:
    """Run every contender once to warm up, then ``turns`` times, in turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    gc.collect()
    gc.freeze()  # what was there before is not collected again and again
    for turn in range(turns + 1):
        for name, run in contenders.items():
            gc.collect()
            start = perf_counter()
            await run()
            if turn:
                times[name].append(perf_counter() - start)
    gc.unfreeze()
    return Times(times)
