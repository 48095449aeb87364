"""The times at which a turn's tools wake up, as this process has seen them."""

from __future__ import annotations

from typing import TypeAlias

from anabranch.agents import ToolSuspended

Asleep: TypeAlias = dict[tuple[str, str], float]
"""The time for which each sleeping tool use waits, by its calling node and use."""


class TurnTimes:
    def __init__(self) -> None:
        self._asleep: Asleep = {}
        self._limits: list[float] = []

    def add(self, suspended: ToolSuspended) -> None:
        if suspended.asks:
            self._limits.append(suspended.until)
        else:
            self._asleep[suspended.caller, suspended.use.id] = suspended.until

    @property
    def has_slept(self) -> bool:
        return bool(self._asleep)

    def asleep(self, now: float) -> Asleep:
        """Return the uses that sleep at ``now``; the tree has the limits of questions."""
        return {use: until for use, until in self._asleep.items() if until > now}

    def earliest(self) -> float:
        known = [*self._asleep.values(), *self._limits]
        return min((until for until in known if until), default=0.0)
