"""The ports of engines, which wake waiting calls, and of the processes that share a store."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeAlias


class Processes(Protocol):
    """The processes that share a store."""

    @property
    def name(self) -> str:
        """The name of this process for the others: hexadecimal digits, unique among the processes."""
        ...

    async def enter(self) -> None:
        """Show that this process is alive, until the store closes; a second call does nothing.

        Raise :class:`StoreError` if the store failed: others would take this process for dead.
        """
        ...

    async def dead(self, names: Collection[str]) -> Collection[str]:
        """Return those of ``names`` that have entered and are dead.

        A living process that has lost its connection for a second or more may be taken for dead.
        The store then refuses its later writes under its leases.
        """
        ...


class UnknownProcesses:
    """The processes of a store that cannot tell which of them are alive."""

    def __init__(self) -> None:
        self.name: str = secrets.token_hex(6)

    async def enter(self) -> None:
        """Do nothing: no other process could see whether this process is alive."""

    async def dead(self, names: Collection[str]) -> Collection[str]:
        del names
        return ()


@dataclass(frozen=True, slots=True)
class Wake:
    """A request that a worker runs the next round of a call.

    Attributes:
        call: the id of the call in the store.
        turn: the name of this wake among the wakes of its call. A repeated name means the same
            wake, which may be done already. To wake a call again, choose another ``turn`` or
            ``not_before``.
        tool: the tool of the call; only workers with this tool take the wake.
        version: the required version of the tool; empty for any version.
        not_before: the earliest time at which a worker may take the wake, in seconds since the
            epoch.
        trace: the ``traceparent`` of the span that requested the wake; empty without tracing.
    """

    call: str
    turn: str
    tool: str
    version: str = ""
    not_before: float = 0.0
    trace: str = ""


Advance: TypeAlias = Callable[[Wake], Awaitable[None]]
"""Continues a call from the store for one round, under its lease.

If the advance is cancelled or raises, the same wake comes again, later.
"""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The number of waiting and running wakes of an engine.

    Attributes:
        waiting: wakes that no worker has taken, including wakes for a later time.
        running: wakes that a worker has taken. With DBOS, wakes of a dead worker count for up to a
            day.
    """

    waiting: int
    running: int


class Engine(Protocol):
    """A scheduler that assigns open calls to workers.

    Methods raise :class:`~anabranch.StoreError` if the engine cannot be reached.
    """

    async def wake(self, wake: Wake) -> None:
        """Request that a worker continues a call at least once; return without waiting for it.

        An engine may lose the wakes that a dying worker has taken, since the store has the work. Two
        workers may continue one call at the same time: the lease in the store prevents harm. If a
        worker is already running the call, the call continues again afterwards.
        """
        ...

    async def work(self, tools: Mapping[str, str], advance: Advance, concurrency: int) -> NoReturn:
        """Run the worker's loop: take wakes and continue their calls, until cancelled.

        Cancellation cancels the running calls; their wakes are delivered again.

        Args:
            tools: the versions of this worker's tools, by tool name.
            advance: the function that continues the call of a wake.
            concurrency: maximum calls that this worker runs at the same time; give all workers the
                same number.

        Raises:
            ValueError: if ``concurrency`` is less than 1.
        """
        ...

    async def backlog(self) -> Backlog:
        """Return the number of waiting and running wakes."""
        ...

    async def close(self) -> None:
        """Close connections; a second call does nothing. Afterwards, other methods raise."""
        ...
