"""The implementation of the port ``BranchStore`` on a database, with its tables and SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from hashlib import blake2b
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event

from anabranch.folding import Branch, BranchRows, Session
from anabranch.stores._database import InDatabase
from anabranch.stores._sql import (
    Opaque,
    Row,
    Statement,
    insert_of,
    metadata,
    numbered,
    optional_bytes,
    partial_index,
    to_bytes,
    to_text,
)

_IS_OPEN, _IS_CLOSED = sa.text("deadline IS NOT NULL"), sa.text("completed_at IS NOT NULL")

SESSION = sa.Table(
    "anabranch_folding_session",
    metadata,
    sa.Column[str]("id", Opaque, primary_key=True),
    sa.Column[float]("touched_at", sa.Double(), nullable=False),
    sa.Column[str]("record", Opaque, nullable=False),
    sa.Index("anabranch_folding_session_touched", "touched_at"),
)
BRANCH = sa.Table(
    "anabranch_branch",
    metadata,
    numbered("seq"),
    sa.Column[str]("id", Opaque, nullable=False, unique=True),
    sa.Column[str]("session", Opaque, nullable=False),
    sa.Column[str]("parent", Opaque),
    sa.Column[float]("deadline", sa.Double()),
    sa.Column[float]("completed_at", sa.Double()),
    sa.Column[str]("record", Opaque, nullable=False),
    sa.Index("anabranch_branch_session", "session", "seq"),
    partial_index("anabranch_branch_open", "session", "seq", where=_IS_OPEN),
    partial_index("anabranch_branch_parent", "parent", "seq", where=_IS_OPEN),
    partial_index("anabranch_branch_deadline", "deadline", where=_IS_OPEN),
    partial_index("anabranch_branch_closed", "completed_at", where=_IS_CLOSED),
)
OPEN_COUNT = sa.Table(
    "anabranch_branch_count",
    metadata,
    sa.Column[int]("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column[int]("open", sa.Integer, nullable=False),
)
"""Has one row: the number of open branches."""


@event.listens_for(OPEN_COUNT, "after_create")
def _begin_to_count(_table: sa.Table, connection: sa.Connection, **_: object) -> None:
    connection.execute(sa.text("INSERT INTO anabranch_branch_count (id, open) VALUES (1, 0)"))


_THIS = sa.bindparam("this", type_=Opaque)
_OPEN = BRANCH.c.deadline.is_not(None)
_BEFORE = sa.bindparam("before", type_=sa.Double)

FIND_SESSION = Statement(sa.select(SESSION.c.record).where(SESSION.c.id == _THIS))
FIND_BRANCH = Statement(sa.select(BRANCH.c.record).where(BRANCH.c.id == _THIS))
_BRANCHES = sa.select(BRANCH.c.record).order_by(BRANCH.c.seq)
BRANCHES = Statement(_BRANCHES.where(BRANCH.c.session == _THIS))
OPEN_BRANCHES = Statement(_BRANCHES.where(BRANCH.c.session == _THIS, _OPEN))
CHILDREN = Statement(_BRANCHES.where(BRANCH.c.parent == _THIS, _OPEN))
OVERDUE = Statement(
    sa.select(BRANCH.c.id)
    .where(_OPEN, BRANCH.c.deadline <= sa.bindparam("now", type_=sa.Double))
    .order_by(BRANCH.c.deadline)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
COUNT = Statement(
    sa.update(OPEN_COUNT)
    .where(
        OPEN_COUNT.c.open + sa.bindparam("change", type_=sa.Integer)
        <= sa.bindparam("most", type_=sa.Integer)
    )
    .values(open=OPEN_COUNT.c.open + sa.bindparam("change", type_=sa.Integer))
)
# A new session has no row to lock, so two transactions could create it at the same time.
LOCK_SESSION = Statement(
    sa.select(sa.func.pg_advisory_xact_lock(sa.bindparam("key", type_=sa.BigInteger)))
)
PRUNE_BRANCHES = Statement(
    sa.delete(BRANCH).where(
        BRANCH.c.seq.in_(
            sa.select(BRANCH.c.seq)
            .where(BRANCH.c.completed_at.is_not(None), BRANCH.c.completed_at < _BEFORE)
            .order_by(BRANCH.c.completed_at)
            .limit(sa.bindparam("most", type_=sa.Integer))
        )
    )
)
PRUNE_SESSIONS = Statement(
    sa.delete(SESSION).where(
        SESSION.c.touched_at < _BEFORE, ~sa.exists().where(BRANCH.c.session == SESSION.c.id)
    )
)


def _put(table: sa.Table, *, fixed: int) -> Statement:
    """Return the statement that inserts a row, or replaces it after its ``fixed`` columns."""
    columns = [column for column in table.c if column.identity is None]
    values = {column.name: sa.bindparam(column.name, type_=column.type) for column in columns}

    def make(dialect: sa.Dialect) -> sa.ClauseElement:
        statement: Any = insert_of(dialect)(table).values(values)
        changes = {column.name: statement.excluded[column.name] for column in columns[fixed:]}
        put: sa.Insert = statement.on_conflict_do_update(index_elements=["id"], set_=changes)
        return put

    return Statement(make)


PUT_SESSION, PUT_BRANCH = _put(SESSION, fixed=1), _put(BRANCH, fixed=3)

T = TypeVar("T")

_BRANCH_FIELDS = tuple(field.name for field in fields(Branch))
_SESSION_FIELDS = tuple(field.name for field in fields(Session))
_UNLIMITED = 2**31 - 1


class Branches(InDatabase):
    async def transaction(self, work: Callable[[BranchRows], T]) -> T:
        def write(connection: sa.Connection) -> T:
            rows = _Rows(connection, is_postgresql=self.database.is_postgresql)
            value = work(rows)
            rows.flush()
            return value

        return await self.database.write(write)

    async def branch(self, branch_id: str) -> Branch | None:
        found = await self._rows(FIND_BRANCH, this=to_bytes(branch_id))
        return to_branch(found[0]) if found else None

    async def branches(self, session_id: str) -> list[Branch]:
        return [to_branch(row) for row in await self._rows(BRANCHES, this=to_bytes(session_id))]

    async def overdue(self, now: float, limit: int) -> list[str]:
        return [to_text(row[0]) for row in await self._rows(OVERDUE, now=now, most=limit)]

    async def prune(self, before: float, limit: int) -> int:
        def work(connection: sa.Connection) -> int:
            values = {"before": before, "most": limit}
            pruned = PRUNE_BRANCHES.count(connection, values)
            PRUNE_SESSIONS.count(connection, {"before": before})
            return pruned

        return await self.database.write(work)


class _Rows:
    """The records of one transaction, which reads each once and writes changes at its end."""

    def __init__(self, connection: sa.Connection, *, is_postgresql: bool) -> None:
        self._connection = connection
        self._is_postgresql = is_postgresql
        self._sessions: dict[str, Session | None] = {}
        self._branches: dict[str, Branch] = {}
        self._new_sessions: dict[str, Session] = {}
        self._new_branches: dict[str, Branch] = {}

    def session(self, session_id: str) -> Session | None:
        if session_id not in self._sessions:
            this = to_bytes(session_id)
            if self._is_postgresql:  # SQLite has one writer, so it needs no lock
                key = int.from_bytes(blake2b(this, digest_size=8).digest(), signed=True)
                LOCK_SESSION.rows(self._connection, {"key": key})
                # Another transaction may have changed the records that were read before the lock.
                self._branches = dict(self._new_branches)
            rows = FIND_SESSION.rows(self._connection, {"this": this})
            values = _values(rows[0], _SESSION_FIELDS) if rows else None
            self._sessions[session_id] = Session(**values) if values else None
        return self._sessions[session_id]

    def branch(self, branch_id: str) -> Branch | None:
        if branch_id not in self._branches:
            rows = self._rows(FIND_BRANCH, branch_id)
            if not rows:
                return None
            self._branches[branch_id] = to_branch(rows[0])
        return self._branches[branch_id]

    def open_children(self, branch_id: str) -> Sequence[Branch]:
        found = self._open(CHILDREN, branch_id)
        return [each for each in found if each.parent_id == branch_id]

    def open_branches(self, session_id: str) -> Sequence[Branch]:
        found = self._open(OPEN_BRANCHES, session_id)
        return [each for each in found if each.session_id == session_id]

    def put_session(self, session: Session) -> None:
        self._sessions[session.id] = self._new_sessions[session.id] = session

    def put_branch(self, branch: Branch) -> None:
        self._branches[branch.id] = self._new_branches[branch.id] = branch

    def flush(self) -> None:
        if self._new_sessions:
            sessions = map(_session_row, self._new_sessions.values())
            PUT_SESSION.count(self._connection, *sessions)
        if self._new_branches:
            branches = map(_branch_row, self._new_branches.values())
            PUT_BRANCH.count(self._connection, *branches)

    def count_open(self, change: int, limit: int | None = None) -> bool:
        values = {"change": change, "most": _UNLIMITED if limit is None else limit}
        return COUNT.count(self._connection, values) == 1

    def _open(self, statement: Statement, name: str) -> list[Branch]:
        """Return the open branches that ``statement`` finds, or that the transaction has put."""
        found = {each.id: each for each in map(to_branch, self._rows(statement, name))}
        return [each for each in (found | self._new_branches).values() if each.is_open]

    def _rows(self, statement: Statement, name: str) -> Sequence[Row]:
        return statement.rows(self._connection, {"this": to_bytes(name)})


def _session_row(session: Session) -> dict[str, Any]:
    record = _record(session, _SESSION_FIELDS)
    return {"id": to_bytes(session.id), "touched_at": session.touched_at, "record": record}


def _branch_row(branch: Branch) -> dict[str, Any]:
    return {
        "id": to_bytes(branch.id),
        "session": to_bytes(branch.session_id),
        "parent": optional_bytes(branch.parent_id),
        "deadline": branch.deadline if branch.is_open else None,
        "completed_at": branch.completed_at,
        "record": _record(branch, _BRANCH_FIELDS),
    }


def to_branch(row: Row) -> Branch:
    values = _values(row, _BRANCH_FIELDS)
    values["injected_memories"] = tuple(values["injected_memories"])
    return Branch(**values)


def _values(row: Row, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a record by name; records of older releases lack newer fields."""
    values: list[Any] = json.loads(row[0])
    return dict(zip(names, values, strict=False))


def _record(record: Branch | Session, names: Sequence[str]) -> bytes:
    return json.dumps([getattr(record, name) for name in names]).encode()
