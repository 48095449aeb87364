"""The wake-up times seen in a turn by this process; none are read from the store."""

from __future__ import annotations

from typing import TypeAlias

from anabranch.agents import ToolSuspended

Asleep: TypeAlias = dict[tuple[str, str], float]
"""Tool uses that wait for a time, each after the node that calls it, and until when."""


class TurnTimes:
    """The times at which a turn goes on by itself.

    Attributes:
        alarm: the time at which the thread was to be looked at before the run began; 0 for none.
    """

    def __init__(self) -> None:
        self.alarm = 0.0
        self._asleep: Asleep = {}
        self._limits: list[float] = []

    def add(self, suspended: ToolSuspended) -> None:
        """Note until when a tool sleeps, or how long it waits for answers."""
        if suspended.asks:
            self._limits.append(suspended.until)
        else:
            self._asleep[suspended.caller, suspended.use.id] = suspended.until

    @property
    def has_slept(self) -> bool:
        """Whether a tool has slept, and may sleep still."""
        return bool(self._asleep)

    def asleep(self, now: float) -> Asleep:
        """Return the tool uses that sleep at ``now``, each after its caller, and until when.

        One whose time is the limit of a question is not among them: that is in the tree.
        """
        return {use: until for use, until in self._asleep.items() if until > now}

    def earliest(self) -> float:
        """Return when there may be something to do after a turn that ends early, 0 for never."""
        known = [*self._asleep.values(), *self._limits, self.alarm]
        return min((until for until in known if until), default=0.0)
