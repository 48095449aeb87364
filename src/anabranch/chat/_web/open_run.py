"""An unfinished run, encoded in the name of its thread's lease for all other processes to read.

The name holds the run and its wait; only this module reads and writes the name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_OWNER = re.compile(r"(.*)/([0-9]+)(?:~([^~/]+)~)?(?:@([^@/]+)@)?(?:\.([^/]*))?", re.DOTALL)
"""The parts of a name: run, processes that left it, awaited version, awaited time, and worker."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """An unfinished run, as the owner of its thread's lease names it.

    Attributes:
        run_id: the run.
        attempt: the number of its workers that died or ended.
        worker: the process that works on it, empty while it waits for one.
        version: the version of the tools' code that its next worker must have; empty for any.
        until: the time for which the run waits, or has waited; 0 if it waits only for a worker.
    """

    run_id: str
    attempt: int = 0
    worker: str = ""
    version: str = ""
    until: float = 0.0

    @classmethod
    def of(cls, owner: str) -> OpenRun:
        """Return the run that an owner's name encodes."""
        if read := _OWNER.fullmatch(owner):
            run, attempt, version, until, worker = read.groups(default="")
            return cls(run, int(attempt), worker, version, float(until or 0.0))
        return cls(owner.rpartition(".")[0], 0, owner.rpartition(".")[2])

    @property
    def name(self) -> str:
        """The name under which the run waits; a worker's name starts with it."""
        pinned = f"~{self.version}~" if self.version else ""
        timed = f"@{self.until!r}@" if self.until else ""
        return f"{self.run_id}/{self.attempt}{pinned}{timed}"

    @property
    def next(self) -> OpenRun:
        """Return the same run without its worker."""
        return replace(self, attempt=self.attempt + bool(self.worker), worker="")

    @property
    def is_alarm(self) -> bool:
        """Whether this is no run, but the time at which a run must start."""
        return not self.run_id
