"""The port of processes: which of those that share a store live, as far as the store can tell.

A process holds a lock under its name from its first lease on, and the lock is free when the process
has ended, however it ended. So what it had a lease on goes on as soon as that is seen, and not when the
lease has run out. A store that cannot tell says of no process that it is dead; then leases run out, as
they do where a machine is cut off.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from typing import Protocol

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
            StoreError: the store failed, and this process would be taken for dead.
        """
        ...

    async def dead(self, names: Collection[str]) -> Collection[str]:
        """Return those of ``names`` that have entered and are dead.

        One that lives may be taken for dead if it has lost its connection for a second or more: what
        it writes then under its leases must not count, as :class:`CallStore` says.

        Raises:
            StoreError: the store failed.
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
