"""The tables of branches and their sessions, and the SQL that reads and writes them.

A record is one text; beside it are the columns by which it is found. ``deadline`` is empty once a branch
is closed, and ``completed_at`` until then, so that the indexes of open branches hold open ones only.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from anabranch.stores._columns import Opaque, metadata
from anabranch.stores._statements import insert_of

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
    sa.Column[int](
        "seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True
    ),
    sa.Column[str]("id", Opaque, nullable=False, unique=True),
    sa.Column[str]("session", Opaque, nullable=False),
    sa.Column[str]("parent", Opaque),
    sa.Column[float]("deadline", sa.Double()),
    sa.Column[float]("completed_at", sa.Double()),
    sa.Column[str]("record", Opaque, nullable=False),
    sa.Index("anabranch_branch_session", "session", "seq"),
    sa.Index(
        "anabranch_branch_open",
        "session",
        "seq",
        sqlite_where=_IS_OPEN,
        postgresql_where=_IS_OPEN,
    ),
    sa.Index(
        "anabranch_branch_parent",
        "parent",
        "seq",
        sqlite_where=_IS_OPEN,
        postgresql_where=_IS_OPEN,
    ),
    sa.Index(
        "anabranch_branch_deadline", "deadline", sqlite_where=_IS_OPEN, postgresql_where=_IS_OPEN
    ),
    sa.Index(
        "anabranch_branch_closed",
        "completed_at",
        sqlite_where=_IS_CLOSED,
        postgresql_where=_IS_CLOSED,
    ),
)
OPEN_COUNT = sa.Table(
    "anabranch_branch_count",
    metadata,
    sa.Column[int]("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column[int]("open", sa.Integer, nullable=False),
)
"""One row, with the number of open branches."""

_THIS = sa.bindparam("this", type_=Opaque)
_OPEN = BRANCH.c.deadline.is_not(None)
_BEFORE = sa.bindparam("before", type_=sa.Double)

FIND_SESSION = sa.select(SESSION.c.record).where(SESSION.c.id == _THIS)
FIND_BRANCH = sa.select(BRANCH.c.record).where(BRANCH.c.id == _THIS)
BRANCHES = sa.select(BRANCH.c.record).where(BRANCH.c.session == _THIS).order_by(BRANCH.c.seq)
OPEN_BRANCHES = BRANCHES.where(_OPEN)
CHILDREN = sa.select(BRANCH.c.record).where(BRANCH.c.parent == _THIS, _OPEN).order_by(BRANCH.c.seq)
OVERDUE = (
    sa.select(BRANCH.c.id)
    .where(_OPEN, BRANCH.c.deadline <= sa.bindparam("now", type_=sa.Double))
    .order_by(BRANCH.c.deadline)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
COUNT = (
    sa.update(OPEN_COUNT)
    .where(
        OPEN_COUNT.c.open + sa.bindparam("change", type_=sa.Integer)
        <= sa.bindparam("most", type_=sa.Integer)
    )
    .values(open=OPEN_COUNT.c.open + sa.bindparam("change", type_=sa.Integer))
)
# A session that is not there has no row to lock; two that create it would not see each other.
LOCK_SESSION = sa.select(sa.func.pg_advisory_xact_lock(sa.bindparam("key", type_=sa.BigInteger)))
PRUNE_BRANCHES = sa.delete(BRANCH).where(
    BRANCH.c.seq.in_(
        sa.select(BRANCH.c.seq)
        .where(BRANCH.c.completed_at.is_not(None), BRANCH.c.completed_at < _BEFORE)
        .order_by(BRANCH.c.completed_at)
        .limit(sa.bindparam("most", type_=sa.Integer))
    )
)
PRUNE_SESSIONS = sa.delete(SESSION).where(
    SESSION.c.touched_at < _BEFORE,
    ~sa.exists().where(BRANCH.c.session == SESSION.c.id),
)


def put_session(*, is_postgresql: bool) -> sa.Insert:
    """Return the statement that writes a session, whether or not it is there."""
    return _put(SESSION, ("id", "touched_at", "record"), 1, is_postgresql=is_postgresql)


def put_branch(*, is_postgresql: bool) -> sa.Insert:
    """Return the statement that writes a branch, whether or not it is there."""
    columns = ("id", "session", "parent", "deadline", "completed_at", "record")
    return _put(BRANCH, columns, 3, is_postgresql=is_postgresql)


def _put(
    table: sa.Table, columns: tuple[str, ...], fixed: int, *, is_postgresql: bool
) -> sa.Insert:
    """Insert a row, or replace what may change of it: all but the first ``fixed`` columns."""
    values = {name: sa.bindparam(name, type_=table.c[name].type) for name in columns}
    statement: Any = insert_of(is_postgresql=is_postgresql)(table).values(values)
    changes = {name: statement.excluded[name] for name in columns[fixed:]}
    put: sa.Insert = statement.on_conflict_do_update(index_elements=["id"], set_=changes)
    return put
