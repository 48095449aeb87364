"""A run that has not ended, as its thread's lease names it: all that other processes know of it at once.

The name says which run it is, and for what it waits; it is read and written here alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_OWNER = re.compile(r"(.*)/([0-9]+)(?:~([^~/]+)~)?(?:@([^@/]+)@)?(?:\.([^/]*))?", re.DOTALL)
"""A run, how many processes have left it, the version and the time that it waits for, who works on it."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that has not ended, as the owner of its thread's lease names it.

    Attributes:
        run_id: the run.
        attempt: how many processes that worked on it have died, or ended.
        worker: the process that works on it, empty while it waits for one.
        version: while it waits, the version of the tools' code that a worker must have to take it;
            empty if any will do.
        until: the time for which it waits, or has waited; 0 if it waits for nothing but a worker.
    """

    run_id: str
    attempt: int = 0
    worker: str = ""
    version: str = ""
    until: float = 0.0

    @classmethod
    def of(cls, owner: str) -> OpenRun:
        """Read the name of an owner."""
        if read := _OWNER.fullmatch(owner):
            run, attempt, version, until, worker = read.groups(default="")
            return cls(run, int(attempt), worker, version, float(until or 0.0))
        return cls(owner.rpartition(".")[0], 0, owner.rpartition(".")[2])

    @property
    def name(self) -> str:
        """The name under which it waits; that of a worker begins with it."""
        pinned = f"~{self.version}~" if self.version else ""
        timed = f"@{self.until!r}@" if self.until else ""
        return f"{self.run_id}/{self.attempt}{pinned}{timed}"

    @property
    def next(self) -> OpenRun:
        """The same run when its worker is gone."""
        return replace(self, attempt=self.attempt + bool(self.worker), worker="")

    @property
    def is_alarm(self) -> bool:
        """Whether it is no run, but the time at which one is to begin."""
        return not self.run_id
