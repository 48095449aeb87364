"""Engines: schedulers that assign open calls and chat runs to worker processes.

:class:`Engine` is the interface. An engine knows only the names and times of calls. The store holds
the calls themselves, so a lost wake costs time but no result.

    _in_process.py   tasks of this process; one advance of a call at a time, and retries
    _dbos.py         queues in Postgres, by DBOS (extra ``dbos``), and its worker in this process
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
