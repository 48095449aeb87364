"""The method of measurement, and the rows of results.

Two ways to do the same work alternate in one process. A ratio is the median over the turns of the
ratios within a turn. So other work on the machine, and its clock rate, meet both sides alike. No test
asserts a time.
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
    """One row of the table: ``value`` in ``unit``, with a goal that it should not exceed."""

    benchmark: str
    measured: str
    value: float
    unit: str = "x"
    goal: float | None = None

    def cells(self) -> list[str]:
        """Return the row's cells as text."""
        goal = "" if self.goal is None else f"≤ {self.goal:g} {self.unit}"
        met = "" if self.goal is None else "yes" if self.value <= self.goal else "**no**"
        return [self.benchmark, self.measured, f"{self.value:.2f} {self.unit}", goal, met]


class Times:
    """The seconds of each contender, turn by turn."""

    def __init__(self, turns: Mapping[str, list[float]]) -> None:
        self._turns = turns

    def ratio(self, one: str, other: str) -> float:
        """Return the time of ``one``, in units of ``other``."""
        pairs = zip(self._turns[one], self._turns[other], strict=True)
        return median(mine / theirs for mine, theirs in pairs)

    def best(self, one: str) -> float:
        """Return the seconds of the fastest turn, which other work disturbed least."""
        return min(self._turns[one])


async def time_in_turns(
    contenders: Mapping[str, Callable[[], Awaitable[object]]], turns: int
) -> Times:
    """Run every contender once to warm up, then ``turns`` times, in turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    gc.collect()
    gc.freeze()  # older objects are not collected in each turn
    for turn in range(turns + 1):
        for name, run in contenders.items():
            gc.collect()
            start = perf_counter()
            await run()
            if turn:
                times[name].append(perf_counter() - start)
    gc.unfreeze()
    return Times(times)
