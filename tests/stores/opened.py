"""Records the databases that a process opens, and uses all connections of a database."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from anabranch.stores._database import Database
from anabranch.stores._engines import CONNECTIONS, SINGLE, SNAPSHOTS, WRITERS

__all__ = ["CONNECTIONS", "opened", "use_all_connections"]


def opened(patch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that receives each database opened by this process."""
    found: list[Any] = []
    open_one = Database.__init__

    def record(self: Database, *given: Any) -> None:
        found.append(self)
        open_one(self, *given)

    patch.setattr(Database, "__init__", record)
    return found


async def use_all_connections(database: Any, work: Callable[[sa.Connection], None]) -> None:
    """Run ``work`` on each connection of a database at the same time."""
    await asyncio.gather(
        *(database.write(work) for _ in range(WRITERS)),
        *(database.write_single(work) for _ in range(SINGLE)),
        *(database.read_at_once(work) for _ in range(SNAPSHOTS)),
    )
