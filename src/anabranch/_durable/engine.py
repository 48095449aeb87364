"""The ports of engines, which wake what waits, and of processes: which of those that share a store live."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeAlias

_OF_PROCESS = re.compile(r"\.([0-9a-f]+)-[0-9a-f]{8}\Z")


class Processes(Protocol):
    """The processes that share a store."""

    @property
    def name(self) -> str:
        """This process, as the others know it: hexadecimal digits, and no other process has them."""
        ...

    async def enter(self) -> None:
        """Be seen to live from now on, and until the store is closed; entering again does nothing.

        Raises:
            StoreError: if the store failed, and this process would be taken for dead.
        """
        ...

    async def dead(self, names: Collection[str]) -> Collection[str]:
        """Return those of ``names`` that have entered and are dead.

        One that lives may be taken for dead if it has lost its connection for a second or more: what
        it writes then under its leases must not count, as :class:`CallStore` says.

        Raises:
            StoreError: if the store failed.
        """
        ...


class UnknownProcesses:
    """The processes of a store that cannot tell which of them live."""

    def __init__(self) -> None:
        self.name: str = secrets.token_hex(6)

    async def enter(self) -> None:
        """Do nothing: who looks has no way to see it."""

    async def dead(self, names: Collection[str]) -> Collection[str]:
        """Return nothing."""
        del names
        return ()


def new_owner(what: str, processes: Processes) -> str:
    """Return the name of a new owner of leases, in this process; ``what`` begins it.

    Two leases of one process exclude each other, so each has an owner of its own. A process that is
    forked has its parent's name, and the random part is its own.
    """
    return f"{what}.{processes.name}-{secrets.token_hex(4)}"


def process_of(owner: str) -> str:
    """Return the process of an owner that :func:`new_owner` has named; empty for any other."""
    found = _OF_PROCESS.search(owner)
    return "" if found is None else found[1]


@dataclass(frozen=True, slots=True)
class Wake:
    """A call that is to be taken one round further.

    Attributes:
        call: its name in the store.
        turn: names this wake among those of its call: the same one again is the same wake, which
            may be done already. To wake a call again, give it another turn, or another time.
        tool: what it runs; only workers that have it take the wake.
        version: only workers that have this version of the tool take it; empty for any version.
        share: whose fair share of the workers it uses, such as a tenant or a person.
        not_before: the time from which it may be taken, in seconds since the epoch.
        trace: the span in which it was woken, as a ``traceparent``, if there was one.
    """

    call: str
    turn: str
    tool: str
    version: str = ""
    share: str = ""
    not_before: float = 0.0
    trace: str = ""


Advance: TypeAlias = Callable[[Wake], Awaitable[None]]
"""Takes a call one round further from the store, under its lease.

It may be cancelled, and may raise: then the same wake comes again, later.
"""


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """How much is done at the same time.

    Attributes:
        concurrency: calls that one worker advances.
        per_share: calls of one share that all workers advance together, for all versions of a tool;
            ``None`` for no limit. Then one share may hold up the others: an engine need not take
            from all in turn.

    Raises:
        ValueError: if a number is not positive.
    """

    concurrency: int = 10
    per_share: int | None = None

    def __post_init__(self) -> None:
        given = {"concurrency": self.concurrency, "per_share": self.per_share}
        for name, number in given.items():
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, not {number}.")


@dataclass(frozen=True, slots=True)
class Backlog:
    """What an engine has to do.

    Attributes:
        waiting: wakes that no worker has taken, those before their time included.
        running: wakes that a worker has taken.
    """

    waiting: int
    running: int


class Engine(Protocol):
    """Wakes calls. Methods raise :class:`~anabranch.StoreError` if the engine cannot be reached."""

    async def wake(self, wake: Wake, *, within: object | None = None) -> None:
        """Have some worker advance the call, at least once, after this returns.

        A call that is being advanced is advanced again afterwards, unless that advance began for
        this same wake. ``within`` is an open transaction of the store, for an engine in the same
        database: the wake then counts if the transaction does. Other engines ignore it.
        """
        ...

    async def work(
        self, tools: Mapping[str, str], advance: Advance, limits: WorkLimits
    ) -> NoReturn:
        """Advance calls until cancelled; then those in progress are cancelled, and come again.

        Args:
            tools: the tools that this worker has, by name, each with its version.
            advance: what is done with each wake.
            limits: how much at the same time; all workers should agree on it.
        """
        ...

    async def every(
        self, name: str, seconds: float, job: Callable[[], Awaitable[object]]
    ) -> NoReturn:
        """Run ``job`` every so many seconds on one of the workers that ask for it, until cancelled.

        A job that fails is logged, and runs again at its next time.
        """
        ...

    async def backlog(self) -> Backlog:
        """Return what there is to do."""
        ...

    async def close(self) -> None:
        """Close connections; closing again does nothing. Other methods then raise."""
        ...
