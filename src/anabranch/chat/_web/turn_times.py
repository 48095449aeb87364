"""The wake-up times that this process sees during a turn, without those in the store."""

from __future__ import annotations

from typing import TypeAlias

from anabranch.agents import ToolSuspended

Asleep: TypeAlias = dict[tuple[str, str], float]
"""The time for which each sleeping tool use waits, by its calling node and use."""


class TurnTimes:
    """The times at which a turn continues without an answer."""

    def __init__(self) -> None:
        self._asleep: Asleep = {}
        self._limits: list[float] = []

    def add(self, suspended: ToolSuspended) -> None:
        """Note the time until which a tool sleeps, or waits for answers."""
        if suspended.asks:
            self._limits.append(suspended.until)
        else:
            self._asleep[suspended.caller, suspended.use.id] = suspended.until

    @property
    def has_slept(self) -> bool:
        """Whether a tool has slept, and may still sleep."""
        return bool(self._asleep)

    def asleep(self, now: float) -> Asleep:
        """Return the tool uses that sleep at ``now``, each with its caller and the end of its sleep.

        A tool use that waits for a question's time limit is left out, because the tree has that limit.
        """
        return {use: until for use, until in self._asleep.items() if until > now}

    def earliest(self) -> float:
        """Return the time of possible work after a turn that ends early, 0 for never."""
        known = [*self._asleep.values(), *self._limits]
        return min((until for until in known if until), default=0.0)
