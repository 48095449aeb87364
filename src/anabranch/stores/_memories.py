"""Memories in a database: the store behind the port :class:`~anabranch.memory.MemoryStore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from anabranch.memory import Filter, Learned, Memory, QueuedBranch
from anabranch.stores._database import Database, InDatabase
from anabranch.stores._memory_search import Vectors, search
from anabranch.stores._memory_tables import (
    DUE,
    MEMORIES,
    MEMORY,
    NUMBERED,
    QUEUE,
    VECTOR,
    VOTE,
    allowed,
    memory_row,
    to_memory,
)
from anabranch.stores._sql import insert_of

_REMEMBERED = 30 * 24 * 3600.0


class Memories(InDatabase):
    def __init__(self, database: Database, *, closes: bool = True) -> None:
        super().__init__(database, closes=closes)
        insert = insert_of(database.dialect)
        self._add: sa.Insert = (
            insert(MEMORY).inline().on_conflict_do_nothing(index_elements=["place", "digest"])
        )
        self._queue: sa.Insert = (
            insert(QUEUE)
            .inline()
            .on_conflict_do_nothing()
            .execution_options(preserve_rowcount=True)
        )
        self._vectors = Vectors(database)

    async def add(self, memories: Sequence[Memory]) -> list[Memory]:
        return await self.database.write(lambda connection: self._added(connection, memories))

    def _added(self, connection: sa.Connection, memories: Sequence[Memory]) -> list[Memory]:
        stored: list[Memory] = []
        for row in map(memory_row, memories):
            connection.execute(self._add, row)
            same = (MEMORY.c.place == row["place"], MEMORY.c.digest == row["digest"])
            stored.append(to_memory(connection.execute(MEMORIES.where(*same)).one()))
        return stored

    async def find(self, memory_id: str) -> Memory | None:
        found = await self._read(MEMORIES.where(MEMORY.c.id == memory_id))
        return found[0] if found else None

    async def newest(self, which: Filter) -> list[Memory]:
        latest = MEMORIES.where(*allowed(which)).order_by(MEMORY.c.seq.desc()).limit(which.limit)
        return await self._read(latest)

    async def search(self, words: Sequence[str], which: Filter) -> list[Memory]:
        is_postgresql = self.database.is_postgresql
        return await self.database.read_at_once(
            lambda connection: search(connection, words, which, is_postgresql=is_postgresql)
        )

    async def rate(self, memory_id: str, *, helpful: bool, voter: str) -> Memory | None:
        return await self.database.write(
            lambda connection: _rated(connection, memory_id, helpful=helpful, voter=voter)
        )

    async def forget(self, memory_id: str) -> bool:
        deleting = sa.delete(MEMORY).where(MEMORY.c.id == memory_id)
        return await self.database.write_single(
            lambda connection: connection.execute(deleting).rowcount > 0
        )

    async def without_vector(self, embedder: str, limit: int) -> list[Memory]:
        has_one = sa.exists().where(VECTOR.c.memory == MEMORY.c.seq, VECTOR.c.embedder == embedder)
        missing = MEMORIES.where(~has_one).order_by(MEMORY.c.seq).limit(limit)
        return await self._read(missing)

    async def add_vectors(self, embedder: str, vectors: Mapping[str, Sequence[float]]) -> None:
        await self._vectors.add(embedder, vectors)

    async def nearest(
        self, embedder: str, vector: Sequence[float], which: Filter, min_similarity: float
    ) -> list[Memory]:
        return await self._vectors.nearest(embedder, vector, which, min_similarity)

    async def queue(self, branch: QueuedBranch) -> bool:
        row: dict[str, Any] = {
            "branch_id": branch.branch.branch_id,
            "branch": branch.model_dump_json(),
            "queued_at": branch.queued_at,
            "due_at": branch.queued_at,
            "attempts": 0,
        }
        old = sa.delete(QUEUE).where(QUEUE.c.queued_at < branch.queued_at - _REMEMBERED)

        def work(connection: sa.Connection) -> bool:
            connection.execute(old)
            return connection.execute(self._queue, row).rowcount == 1

        return await self.database.write(work)

    async def lease(self, owner: str, now: float, until: float) -> QueuedBranch | None:
        leasing = (
            sa.update(QUEUE)
            .where(QUEUE.c.branch_id == DUE.scalar_subquery())
            .values(owner=owner, due_at=until, attempts=QUEUE.c.attempts + 1)
            .returning(QUEUE.c.branch, QUEUE.c.attempts)
        )

        def work(connection: sa.Connection) -> QueuedBranch | None:
            row = connection.execute(leasing, {"now": now}).one_or_none()
            if row is None:
                return None
            return QueuedBranch.model_validate_json(row[0]).model_copy(update={"attempts": row[1]})

        return await self.database.write(work)

    async def finish(self, branch_id: str, owner: str, learned: Learned) -> bool:
        ending = _leased(branch_id, owner).values(branch="", owner=None, problem=None)
        votes = {
            **dict.fromkeys(learned.confirmed, True),
            **dict.fromkeys(learned.contradicted, False),
        }
        forgetting = sa.delete(MEMORY).where(MEMORY.c.id.in_(learned.replaced))
        known = MEMORY.c.id.in_({*votes, *learned.replaced})
        # One order for all workers, so that none deadlocks.
        locking = sa.select(MEMORY.c.seq).where(known).order_by(MEMORY.c.seq).with_for_update()

        def work(connection: sa.Connection) -> bool:
            if not connection.execute(ending).rowcount:
                return False
            connection.execute(locking).all()
            connection.execute(forgetting)
            for memory_id, helpful in votes.items():
                _rated(connection, memory_id, helpful=helpful, voter=learned.voter)
            self._added(connection, learned.added)
            return True

        return await self.database.write(work)

    async def retry(self, branch_id: str, owner: str, at: float | None, problem: str) -> bool:
        values: dict[str, Any] = {"due_at": at} if at is not None else {"branch": ""}
        ending = _leased(branch_id, owner).values(owner=None, problem=problem, **values)
        return await self.database.write_single(
            lambda connection: connection.execute(ending).rowcount > 0
        )

    async def waiting(self) -> int:
        counting = sa.select(sa.func.count()).where(QUEUE.c.branch != "")
        return await self.database.read(lambda connection: connection.scalar(counting) or 0)

    async def _read(self, finding: sa.Select[Any]) -> list[Memory]:
        return await self.database.read(
            lambda connection: list(map(to_memory, connection.execute(finding)))
        )


def _leased(branch_id: str, owner: str) -> sa.Update:
    return sa.update(QUEUE).where(QUEUE.c.branch_id == branch_id, QUEUE.c.owner == owner)


def _rated(
    connection: sa.Connection, memory_id: str, *, helpful: bool, voter: str
) -> Memory | None:
    this = MEMORY.c.id == memory_id
    row = connection.execute(NUMBERED.where(this).with_for_update()).one_or_none()
    if row is None:
        return None
    seq, memory = row[0], to_memory(row[1:])
    own = (VOTE.c.memory == seq, VOTE.c.voter == voter)
    before = connection.scalar(sa.select(VOTE.c.helpful).where(*own))
    rated = memory.rated(helpful=helpful, instead=before)
    if before is None:
        vote = {"memory": seq, "voter": voter, "helpful": helpful}
        connection.execute(sa.insert(VOTE).values(vote))
    else:
        connection.execute(sa.update(VOTE).where(*own).values(helpful=helpful))
    changes = {
        "helpful": rated.helpful,
        "unhelpful": rated.unhelpful,
        "confidence": rated.confidence,
    }
    connection.execute(sa.update(MEMORY).where(this).values(changes))
    return rated
