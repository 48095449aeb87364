"""Engines, which wake each call at its time, on one of the workers, within limits.

The port is ``Engine``; it belongs to ``_durable``, and this package exports it with its records.
The store is the truth, and an engine knows names and times only: a lost wake costs time, and no
result.

    _advances.py     one advance of a call at a time, and retries
    _in_process.py   tasks of this process
    _dbos.py         queues in Postgres, by DBOS (extra ``dbos``)
    _dbos_worker.py  a worker of DBOS in this process
"""

from typing import TYPE_CHECKING

from anabranch._lazy import lazy_names
from anabranch.errors import needs_extra

if TYPE_CHECKING:
    from anabranch._durable import Advance, Backlog, Engine, Wake
    from anabranch.engines._dbos import DBOSEngine
    from anabranch.engines._in_process import InProcessEngine
else:
    _load = lazy_names(
        __name__,
        {
            "anabranch._durable": "Advance Backlog Engine Wake",
            "._dbos": "DBOSEngine",
            "._in_process": "InProcessEngine",
        },
    )

    def __getattr__(name: str) -> object:
        with needs_extra("dbos", name):
            return _load(name)


__all__ = ["Backlog", "DBOSEngine", "Engine", "Wake"]
