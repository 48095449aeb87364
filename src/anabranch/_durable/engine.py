"""The port of engines: they wake what waits, at its time, on some worker, so many at a time.

``engines/`` has the implementations, ``anabranch.testing.suites`` the checks that each must pass.

The store is the truth, and an engine is only speed: it knows names and times, never a value, a
secret or a journal. A wake may come twice, late, or not at all; a caller that depends on one looks into
the store from time to time as well, as with :meth:`Engine.every`. An engine may even run two
advances of one call at the same time, on two workers; the lease in the store prevents harm.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeAlias


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
        ValueError: a number is not positive.
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
