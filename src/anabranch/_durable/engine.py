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
    """A request to continue a call for one round.

    Attributes:
        call: the name of the call in the store.
        turn: the name of this wake among those of its call. The same name means the same wake,
            which may be done already. To wake a call again, choose another turn, or another time.
        tool: the tool of the call; only workers that have it take the wake.
        version: the required version of the tool; empty for any version.
        not_before: the time from which a worker may take the wake, in seconds since the epoch.
        trace: the span in which the call was woken, as a ``traceparent``; empty without one.
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
    """The open work of an engine.

    Attributes:
        waiting: wakes that no worker has taken, including those before their time.
        running: wakes that a worker has taken; with DBOS, a day long also those of dead workers.
    """

    waiting: int
    running: int


class Engine(Protocol):
    """Wakes calls. Methods raise :class:`~anabranch.StoreError` if the engine cannot be reached."""

    async def wake(self, wake: Wake) -> None:
        """Ask that some worker advances the call at least once; return before a worker does.

        The death of a worker may lose the wakes that it has taken, since the store has the work. Two
        workers may advance one call at the same time: the lease in the store prevents harm.
        If a worker is advancing the call for another wake, the call is advanced again afterwards.
        """
        ...

    async def work(self, tools: Mapping[str, str], advance: Advance, concurrency: int) -> NoReturn:
        """Advance calls until cancelled; then running advances are cancelled, and their wakes come again.

        Args:
            tools: the tools that this worker has, by name, each with its version.
            advance: advances the call of a wake.
            concurrency: the most calls that this worker advances at the same time; all workers
                should have the same number.

        Raises:
            ValueError: if ``concurrency`` is less than 1.
        """
        ...

    async def backlog(self) -> Backlog:
        """Return the open work of the engine."""
        ...

    async def close(self) -> None:
        """Close connections; a second call does nothing. Afterwards, other methods raise."""
        ...
