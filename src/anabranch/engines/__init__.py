"""Engines: they wake calls, each at its time, on some worker, within limits.

The port is ``Engine``; it belongs to ``_durable``, and this package exports it with its records.
The store is the truth, and an engine knows names and times only: a lost wake costs time, and no
result.

    _waiting_wakes.py  the waiting wakes of a process, in order
    _advances.py       one advance of a call at a time, and retries
    _in_process.py     tasks of this process
    _dbos.py           queues in Postgres, by DBOS (extra ``dbos``)
    _dbos_worker.py    a worker of DBOS in this process
    _job_locks.py      locks for periodic jobs, over DBOS's database
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch._durable import Advance, Backlog, Engine, Wake, WorkLimits
from anabranch.engines._advances import run_job
from anabranch.engines._in_process import InProcessEngine
from anabranch.errors import needs_extra

if TYPE_CHECKING:
    from anabranch.engines._dbos import DBOSEngine

__all__ = [
    "Backlog",
    "DBOSEngine",
    "Engine",
    "InProcessEngine",
    "Wake",
    "WorkLimits",
]


def __getattr__(name: str) -> object:
    if name == "DBOSEngine":
        with needs_extra("dbos", name):
            from anabranch.engines._dbos import DBOSEngine  # noqa: PLC0415 - only where it is used
        return DBOSEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
