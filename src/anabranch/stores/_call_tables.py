"""The tables of calls, and the SQL that reads and writes them."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa

from anabranch.stores._columns import Opaque, metadata
from anabranch.stores._statements import insert_of

__all__ = [
    "ADD_POSTGRES",
    "CALL",
    "CALL_AND_ROUND",
    "END",
    "ENTRIES",
    "ENTRY",
    "EXPIRED",
    "FIND",
    "FINISH",
    "LAST_ROUND",
    "LEASE",
    "LEASED",
    "LOCK",
    "MOVE",
    "ONE_ENTRY",
    "OPEN_CALLS",
    "PRUNE",
    "RELEASE",
    "RENEW",
    "ROUND",
    "ROUND_NUMBER",
    "SHORTEN",
    "insert_first",
    "listing",
]

_ASKS = sa.text("status = 'open' AND asked IS NOT NULL")
_IS_OPEN, _IS_OVER = sa.text("status = 'open'"), sa.text("status <> 'open'")

CALL = sa.Table(
    "anabranch_call",
    metadata,
    sa.Column[str]("call_id", Opaque, primary_key=True),
    sa.Column[str]("tool", Opaque, nullable=False),
    sa.Column[str]("arguments", Opaque, nullable=False),
    sa.Column[float]("started", sa.Double(), nullable=False),
    sa.Column[float]("deadline", sa.Double(), nullable=False),
    sa.Column[str]("status", sa.Text, nullable=False),
    sa.Column[str]("principal", Opaque, nullable=False),
    sa.Column[str]("owner", Opaque),
    sa.Column[float]("leased_until", sa.Double()),
    sa.Column[str]("version", Opaque),
    sa.Column[float]("asked", sa.Double()),
    sa.Index("anabranch_call_asked", "asked", sqlite_where=_ASKS, postgresql_where=_ASKS),
    sa.Index("anabranch_call_open", "deadline", sqlite_where=_IS_OPEN, postgresql_where=_IS_OPEN),
    sa.Index("anabranch_call_over", "deadline", sqlite_where=_IS_OVER, postgresql_where=_IS_OVER),
    sa.Index("anabranch_call_started", "started", "call_id"),
)


def _of_call() -> sa.ForeignKey:
    return sa.ForeignKey("anabranch_call.call_id", ondelete="CASCADE")


ROUND = sa.Table(
    "anabranch_round",
    metadata,
    sa.Column[str]("call_id", Opaque, _of_call(), primary_key=True),
    sa.Column[int]("number", sa.Integer, primary_key=True),
    sa.Column[str]("answers", Opaque, nullable=False),
    sa.Column[str]("reply", Opaque, nullable=False),
    sa.Column[str]("state", Opaque, nullable=False),
    sa.Column[str]("notes", Opaque),
)
ENTRY = sa.Table(
    "anabranch_entry",
    metadata,
    sa.Column[int](
        "id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(), primary_key=True
    ),
    sa.Column[str]("call_id", Opaque, _of_call(), nullable=False),
    sa.Column[int]("number", sa.Integer, nullable=False),
    sa.Column[str]("step_id", Opaque, nullable=False),
    sa.Column[str]("text", Opaque, nullable=False),
    sa.UniqueConstraint("call_id", "step_id"),
    sa.Index("anabranch_entry_round", "call_id", "number", "id"),
)

_THIS = CALL.c.call_id == sa.bindparam("this")
_CALL = sa.select(
    CALL.c.call_id,
    CALL.c.tool,
    CALL.c.arguments,
    CALL.c.started,
    CALL.c.deadline,
    CALL.c.status,
    CALL.c.principal,
    CALL.c.version,
    CALL.c.asked,
)
FIND = _CALL.where(_THIS)
LEASED = sa.select(CALL.c.owner, CALL.c.leased_until).where(_THIS)
LEASE = (
    sa.update(CALL)
    .where(
        _THIS,
        sa.or_(
            CALL.c.owner.is_(None),
            CALL.c.owner == sa.bindparam("new_owner"),
            CALL.c.leased_until <= sa.bindparam("now"),
        ),
    )
    .values(owner=sa.bindparam("new_owner"), leased_until=sa.bindparam("until"))
)
SHORTEN = (
    sa.update(CALL)
    .where(_THIS, CALL.c.leased_until > sa.bindparam("until"))
    .values(leased_until=sa.bindparam("until"))
)
LOCK = sa.select(CALL.c.call_id).where(_THIS).with_for_update(key_share=True)
RELEASE = (
    sa.update(CALL)
    .where(_THIS, CALL.c.owner == sa.bindparam("old_owner"))
    .values(owner=sa.null(), leased_until=sa.null())
)
RENEW = (
    sa.update(CALL)
    .where(_THIS, CALL.c.owner == sa.bindparam("old_owner"))
    .values(leased_until=sa.bindparam("until"))
)
MOVE = (
    sa.update(CALL)
    .where(_THIS, _IS_OPEN)
    .values(
        status=sa.bindparam("new_status"),
        deadline=sa.func.coalesce(sa.bindparam("new_deadline", type_=sa.Double), CALL.c.deadline),
        version=sa.func.coalesce(sa.bindparam("new_version", type_=Opaque), CALL.c.version),
    )
)
FINISH = MOVE.where(CALL.c.owner == sa.bindparam("old_owner"))
END = MOVE.values(asked=sa.bindparam("new_asked", type_=sa.Double))
_ENDED = (ROUND.c.number, ROUND.c.answers, ROUND.c.reply, ROUND.c.state, ROUND.c.notes)
_ROUND = sa.select(*_ENDED).where(ROUND.c.call_id == sa.bindparam("this"))
ROUND_NUMBER = _ROUND.where(ROUND.c.number == sa.bindparam("which"))
LAST_ROUND = _ROUND.order_by(ROUND.c.number.desc()).limit(1)
CALL_AND_ROUND = (
    sa.select(*_CALL.selected_columns, *_ENDED)
    .select_from(
        CALL.outerjoin(
            ROUND,
            sa.and_(ROUND.c.call_id == CALL.c.call_id, ROUND.c.number == sa.bindparam("which")),
        )
    )
    .where(_THIS)
)
ENTRIES = (
    sa.select(ENTRY.c.step_id, ENTRY.c.text)
    .where(ENTRY.c.call_id == sa.bindparam("this"), ENTRY.c.number == sa.bindparam("which"))
    .order_by(ENTRY.c.id)
)
ONE_ENTRY = sa.select(ENTRY.c.text).where(
    ENTRY.c.call_id == sa.bindparam("this"), ENTRY.c.step_id == sa.bindparam("step")
)
EXPIRED = (
    _CALL.where(_IS_OPEN, CALL.c.deadline <= sa.bindparam("now"))
    .order_by(CALL.c.deadline, CALL.c.call_id)
    .limit(sa.bindparam("most"))
)
_asking = CALL.alias("asking")
_LONGEST = (  # of those that no one works on
    sa.select(_asking.c.asked)
    .where(_ASKS, _asking.c.owner.is_(None))
    .order_by(_asking.c.asked)
    .limit(1)
)
OPEN_CALLS = sa.select(
    sa.func.count(), sa.func.min(CALL.c.started), _LONGEST.scalar_subquery()
).where(_IS_OPEN)
PRUNE = sa.delete(CALL).where(
    CALL.c.call_id.in_(
        sa.select(CALL.c.call_id)
        .where(_IS_OVER, CALL.c.deadline < sa.bindparam("before"))
        .order_by(CALL.c.deadline, CALL.c.call_id)
        .limit(sa.bindparam("most"))
        .with_for_update(skip_locked=True)  # another process prunes those; SQLite ignores it
    )
)


def listing(given: Collection[str]) -> sa.ClauseElement:
    """Return the statement for a page of calls, with the conditions that are ``given``."""
    started, call_id = CALL.c.started, CALL.c.call_id
    conditions = {
        "tool": CALL.c.tool == sa.bindparam("tool"),
        "status": CALL.c.status == sa.bindparam("status"),
        "begins": sa.and_(call_id >= sa.bindparam("begins"), call_id < sa.bindparam("beyond")),
        "recorded": sa.exists().where(
            ENTRY.c.call_id == call_id, ENTRY.c.step_id == sa.bindparam("recorded")
        ),
        "this": sa.or_(
            started < sa.bindparam("begun"),
            sa.and_(started == sa.bindparam("begun"), call_id < sa.bindparam("this")),
        ),
    }
    page = _CALL.where(*(conditions[name] for name in conditions if name in given))
    return page.order_by(started.desc(), call_id.desc()).limit(sa.bindparam("most"))


def insert_first(table: sa.Table, *, is_postgresql: bool) -> sa.Insert:
    """Return the statement that inserts a row unless its key is taken.

    Every column is given, except a number that the database generates.
    """
    insert = insert_of(is_postgresql=is_postgresql)
    given = {
        column.name: sa.bindparam(column.name, type_=column.type)
        for column in table.c
        if column.identity is None
    }
    statement: sa.Insert = insert(table).inline().values(given).on_conflict_do_nothing()
    return statement


ADD_POSTGRES = sa.text("""
    WITH this AS (
        SELECT call_id FROM anabranch_call
        WHERE call_id = :call_id AND (CAST(:old_owner AS bytea) IS NULL OR owner = :old_owner)
        FOR NO KEY UPDATE
    )
    INSERT INTO anabranch_entry (call_id, number, step_id, text)
    SELECT this.call_id, :number, new.step_id, new.text
    FROM this, unnest(CAST(:step_ids AS bytea[]), CAST(:texts AS bytea[]))
        WITH ORDINALITY AS new (step_id, text, place)
    ORDER BY new.place
    ON CONFLICT (call_id, step_id) DO NOTHING
    RETURNING step_id
""").columns(step_id=Opaque)
