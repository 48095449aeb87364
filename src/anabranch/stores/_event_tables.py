"""The tables of run events, and the SQL that reads and writes them.

A run's row has the numbers of its first and last stored event, and the mark of the last. The row
outlives the events, so that no number is used twice. Processes read the row to learn of new events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from anabranch._durable import TURN_TRANSITIONS, TurnEvent, TurnState
from anabranch.stores._sql import (
    Opaque,
    RowsStatement,
    Statement,
    insert_of,
    metadata,
    partial_index,
)

CHANNEL = "anabranch_run_events"
"""The Postgres channel of announcements: MD5 of the run, a colon, number of its last event."""

_HAS_TURN = sa.text("state IS NOT NULL")
_HAS_LOOK = sa.text("look_at IS NOT NULL")
_WORKS = sa.text(f"state = '{TurnState.RUNNING}' AND works")
RUN = sa.Table(
    "anabranch_run",
    metadata,
    sa.Column[str]("run", Opaque, primary_key=True),
    sa.Column[int]("first", sa.BigInteger, nullable=False),
    sa.Column[int]("last", sa.BigInteger, nullable=False),
    sa.Column[float]("at", sa.Double(), nullable=False),
    sa.Column[int]("mark", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column[str]("turn", Opaque),
    sa.Column[str]("state", sa.Text),
    sa.Column[float]("due", sa.Double()),
    sa.Column[str]("owner", Opaque),
    sa.Column[str]("process", sa.Text),
    sa.Column[int]("attempt", sa.Integer),
    sa.Column[str]("version", Opaque),
    sa.Column[float]("wakes_at", sa.Double()),
    sa.Column[float]("look_at", sa.Double()),
    sa.Column[str]("share", Opaque),
    sa.Column[bool]("works", sa.Boolean()),
    sa.Column[str]("queued", Opaque),
    sa.Column[bytes]("queued_event", sa.LargeBinary),
    partial_index("anabranch_run_due", "due", where=_HAS_TURN),
    partial_index("anabranch_run_look", "look_at", where=_HAS_LOOK),
    partial_index("anabranch_run_share", "share", where=_WORKS),
)
_HAS_KEY = sa.text("key IS NOT NULL")
EVENT = sa.Table(
    "anabranch_event",
    metadata,
    sa.Column[str]("run", Opaque, primary_key=True),
    sa.Column[int]("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column[str]("key", Opaque),
    sa.Column[bytes]("data", sa.LargeBinary, nullable=False),
    sa.Column[int]("mark", sa.BigInteger, nullable=False, server_default="1"),
    partial_index("anabranch_event_key", "run", "key", where=_HAS_KEY),
)

_THIS = RUN.c.run == sa.bindparam("this")
_OF_THIS = EVENT.c.run == sa.bindparam("this")

_MARK = (
    sa.select(EVENT.c.mark).where(_OF_THIS, EVENT.c.number == sa.bindparam("after"))
).scalar_subquery()
HEAD = Statement(sa.select(RUN.c.last, RUN.c.mark, _MARK).where(_THIS))
"""The number and the mark of a run's last event, and the mark of the event ``after``."""
_FIND = sa.select(sa.func.min(EVENT.c.number)).where(_OF_THIS, EVENT.c.key == sa.bindparam("name"))
FIND = Statement(_FIND)
TURN_COLUMNS: tuple[str, ...] = (
    *("turn", "state", "due", "owner", "process", "attempt", "version", "wakes_at"),
)
"""The columns of a turn, in the order of the record's attributes."""
_TURN = [RUN.c[name] for name in TURN_COLUMNS]
_IS_OWNED = RUN.c.owner == sa.bindparam("old_owner")
TURN = Statement(sa.select(*_TURN).where(_THIS, RUN.c.state.is_not(None)))
HOLDS = Statement(sa.select(RUN.c.run).where(_THIS, _IS_OWNED).with_for_update(read=True))
"""Finds the run of an owner, which stays the owner until the end of the transaction."""
ANNOUNCE = Statement(
    sa.text("""
    SELECT set_config('synchronous_commit', 'off', true),
        pg_notify('anabranch_run_events', md5(CAST(:this AS bytea)) || ':' || :last)
""")
)
"""Announces events on Postgres; one transaction at a time commits an announcement, so it is short."""
_UNWAITED = sa.func.set_config("synchronous_commit", "off", True)  # noqa: FBT003 - of Postgres
"""A column of a Postgres statement; it makes the commit not wait for the disk."""


def _unwaited(statement: sa.Update | Callable[[sa.Dialect], sa.Insert]) -> Statement:
    """Return ``statement`` so that on Postgres its commit does not wait for the disk."""

    def make(dialect: sa.Dialect) -> sa.ClauseElement:
        made = statement if isinstance(statement, sa.Update) else statement(dialect)
        return made.returning(_UNWAITED) if dialect.name == "postgresql" else made

    return Statement(make)


_NEXT: dict[str, sa.BindParameter[Any]] = {
    name: sa.bindparam(f"new_{name}") for name in TURN_COLUMNS
}
RENEW = _unwaited(sa.update(RUN).where(_THIS, _IS_OWNED).values(due=sa.bindparam("until")))
_LOOK = sa.bindparam("look", type_=sa.Double)
_EARLIER = sa.case(
    (RUN.c.look_at <= _LOOK, RUN.c.look_at), else_=sa.func.coalesce(_LOOK, RUN.c.look_at)
)
_NO_TURN = dict.fromkeys(TURN_COLUMNS, sa.null())
RELEASE = _unwaited(sa.update(RUN).where(_THIS, _IS_OWNED).values(_NO_TURN))
"""Ends the turn of an owner."""


def _looking(dialect: sa.Dialect) -> sa.Insert:
    insert = insert_of(dialect)(RUN).values(
        run=sa.bindparam("this"), first=1, last=0, at=_LOOK, look_at=_LOOK
    )
    made: sa.Insert = insert.on_conflict_do_update(
        index_elements=[RUN.c.run], set_={RUN.c.look_at: _EARLIER}
    )
    return made


LOOK = _unwaited(_looking)
LOOKED = _unwaited(
    sa.update(RUN)
    .where(_THIS, RUN.c.state.is_(None), RUN.c.look_at > sa.bindparam("now"))
    .values(look_at=_LOOK)
)
MOVE = _unwaited(
    sa.update(RUN)
    .where(
        _THIS,
        *(RUN.c[name] == sa.bindparam(f"old_{name}") for name in TURN_COLUMNS if name != "due"),
        RUN.c.due <= sa.bindparam("now"),
    )
    .values(_NEXT)
)
"""Replaces a turn if the turn is still the one that was read."""


_TO_RUN = TURN_TRANSITIONS[TurnEvent.TAKE]
_IS_READY = RUN.c.state == sa.literal_column(f"'{TurnState.READY}'")
_WAKES = sa.and_(
    RUN.c.state == sa.literal_column(f"'{TurnState.WAITING}'"),
    RUN.c.wakes_at <= sa.bindparam("now"),
)
_FITS = RUN.c.version.in_([sa.bindparam("any_version"), sa.bindparam("this_version")])
_RUNNING: sa.ColumnClause[str] = sa.literal_column(f"'{TurnState.RUNNING}'")
_other = RUN.alias("other")
_running = sa.select(sa.func.count()).where(_other.c.state == _RUNNING, _other.c.works)
_own = sa.select(RUN.c.share).where(_THIS).scalar_subquery()
_share = sa.func.coalesce(sa.bindparam("share", type_=Opaque), _own)
RUNNING = Statement(_running.where(_other.c.share == _share))
"""The number of turns on which workers work, of a share or of a run's own share."""
_HAS_ROOM = _running.where(_other.c.share == RUN.c.share).scalar_subquery() < sa.bindparam(
    "per_share"
)
"""Whether the share of a run has fewer running turns than may run."""


def _claiming(*conditions: sa.ColumnElement[bool]) -> Statement:
    """Return the statement that claims runs with due work, and postpones that work for others."""
    now: sa.BindParameter[float] = sa.bindparam("now")
    until: sa.BindParameter[float] = sa.bindparam("until")
    is_due = sa.and_(_HAS_TURN, RUN.c.due <= now, RUN.c.state != _RUNNING, _FITS)
    found = (
        sa.select(RUN.c.run)
        .where(sa.or_(is_due, sa.and_(RUN.c.state.is_(None), RUN.c.look_at <= now)), *conditions)
        .order_by(sa.func.coalesce(RUN.c.due, RUN.c.look_at))
        .limit(sa.bindparam("most"))
        .with_for_update(skip_locked=True)  # another process claims it; SQLite ignores it
    )
    return _unwaited(
        sa.update(RUN)
        .where(RUN.c.run.in_(found))
        .values(
            due=sa.case((RUN.c.state.is_(None), RUN.c.due), else_=until),
            look_at=sa.case((RUN.c.state.is_(None), until), else_=RUN.c.look_at),
        )
        .returning(RUN.c.run)
    )


CLAIM, CLAIM_SHARED = _claiming(), _claiming(_HAS_ROOM)

_IS_QUEUED = RUN.c.queued == sa.bindparam("new_turn")
QUEUE = Statement(
    sa.update(RUN)
    .where(
        _THIS,
        RUN.c.state == sa.literal_column(f"'{TurnState.WAITING}'"),
        sa.or_(RUN.c.queued.is_(None), RUN.c.queued == sa.bindparam("name")),
    )
    .values(queued=sa.bindparam("name"), queued_event=sa.bindparam("event"))
)
"""Stores a turn that begins later; its commit waits for the disk, since no client repeats it."""
QUEUED = Statement(
    sa.select(RUN.c.queued, RUN.c.queued_event).where(_THIS, RUN.c.queued.is_not(None))
)


def _later_than(name: str) -> sa.ColumnElement[float | None]:
    """Return the time of a run's next look if later than the parameter ``name``, else null."""
    return sa.case((RUN.c.look_at > sa.bindparam(name), RUN.c.look_at), else_=sa.null())


def _taking(condition: sa.ColumnElement[bool]) -> Statement:
    """Return the statement that takes the lease on a run's turn if ``condition`` holds."""
    begun = sa.select(sa.func.min(EVENT.c.number)).where(_OF_THIS, EVENT.c.key == RUN.c.turn)
    return _unwaited(
        sa.update(RUN)
        .where(_THIS, condition)
        .values(
            state=sa.literal_column(f"'{_TO_RUN[TurnState.READY]}'"),
            due=sa.bindparam("until"),
            owner=sa.bindparam("new_owner"),
            process=sa.bindparam("new_process"),
            version=sa.bindparam("any_version"),
            works=sa.true(),
            look_at=_later_than("now"),
        )
        .returning(*_TURN, begun.scalar_subquery(), RUN.c.last)
    )


_IS_TAKEN = sa.or_(sa.and_(_IS_READY, _FITS), _WAKES)
TAKE = _taking(_IS_TAKEN)
_NOW: sa.BindParameter[float] = sa.bindparam("now")
DUE_NOW = _unwaited(sa.update(RUN).where(_THIS, _IS_TAKEN, RUN.c.due > _NOW).values(due=_NOW))
"""Lets a claim find the turn that :data:`TAKE` would take, once its share has room."""
_LOCK: sa.ColumnClause[int] = sa.literal_column(str(0x616E6163))  # the same in every release
LOCK_SHARES = Statement(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
"""Lets one process at a time let a turn of any share run, on Postgres: others count the turn afterwards."""
TAKE_ANY = _taking(_IS_READY)
"""Takes a turn that is ready for whichever version."""
_overdue = (
    sa.select(RUN.c.run, *_TURN)
    .where(_HAS_TURN, RUN.c.due <= sa.bindparam("now"))
    .order_by(RUN.c.due)
    .limit(sa.bindparam("most"))
)
OVERDUE, OVERDUE_RUNNING = Statement(_overdue), Statement(_overdue.where(RUN.c.state == _RUNNING))
DELETE = Statement(sa.delete(EVENT).where(_OF_THIS, EVENT.c.number < sa.bindparam("until")))
SET_FIRST = Statement(
    sa.update(RUN)
    .where(
        _THIS,
        RUN.c.first < sa.bindparam("until"),
        sa.or_(RUN.c.state.is_(None), sa.bindparam("until") <= sa.bindparam("begun")),
    )
    .values(first=sa.bindparam("until"))
)
"""Moves the first number up, never down: a later writer may have a lower one.

A run with a turn keeps its events from the number with which the turn began.
"""
OLD_RUNS = Statement(
    sa.select(RUN.c.run, RUN.c.first, RUN.c.last)
    .where(RUN.c.at < sa.bindparam("before"), RUN.c.first <= RUN.c.last, RUN.c.state.is_(None))
    .order_by(RUN.c.at, RUN.c.run)
    .limit(sa.bindparam("most"))
    .with_for_update(skip_locked=True)  # another process prunes locked rows; SQLite ignores this
)

_following = (
    sa.select(
        EVENT.c.number,
        EVENT.c.data,
        EVENT.c.mark,
        sa.func.sum(sa.func.length(EVENT.c.data)).over(order_by=EVENT.c.number).label("size"),
    )
    .where(_OF_THIS, EVENT.c.number > sa.bindparam("after"))
    .order_by(EVENT.c.number)
    .limit(sa.bindparam("most"))
    .subquery()
)
_is_next = _following.c.number == sa.bindparam("after") + 1
PAGE = Statement(
    sa.select(
        RUN.c.first,
        RUN.c.last,
        RUN.c.mark,
        _MARK,
        _following.c.number,
        _following.c.data,
        _following.c.mark,
    )
    .outerjoin_from(RUN, _following, sa.or_(_is_next, _following.c.size <= sa.bindparam("bytes")))
    .where(_THIS)
    .order_by(_following.c.number)
)
"""One row for each event after ``after``, with the run's first and last number and two marks.

The marks are those of the last event and of ``after``. A page has at most ``most`` events and ``bytes``
bytes, but always the next event. Without a further event, one row has the run's columns alone.
"""


_SIZE = sa.bindparam("size", type_=sa.BigInteger)
_COUNTED: dict[str, sa.ColumnElement[Any]] = {
    "last": RUN.c.last + _SIZE,
    "at": sa.bindparam("at"),
    "mark": sa.bindparam("mark"),
}
_HEAD = (RUN.c.first, RUN.c.last, RUN.c.state)


def _counting(dialect: sa.Dialect) -> sa.ClauseElement:
    insert = insert_of(dialect)(RUN).values(
        _COUNTED | {"run": sa.bindparam("this"), "first": 1, "last": _SIZE}
    )
    adding = insert.on_conflict_do_update(index_elements=[RUN.c.run], set_=_COUNTED)
    made: sa.ClauseElement = adding.returning(*_HEAD)
    return made


COUNT = Statement(_counting)
"""Reserves event numbers in a run; returns its first and last number, and its turn's state.

SQLite may evaluate ``state IS NULL`` wrongly in the row that an upsert returns.
"""
_OWNED = sa.update(RUN).where(_THIS, _IS_OWNED)
COUNT_OWNED = Statement(_OWNED.values(_COUNTED).returning(*_HEAD))
"""Reserves numbers in the run of an owner."""
COUNT_LAST = Statement(_OWNED.values(_COUNTED | _NO_TURN | {"look_at": _EARLIER}).returning(*_HEAD))
"""Reserves numbers in the run of an owner, and ends its turn."""


def _adding(count: int) -> sa.ClauseElement:
    names = [column.name for column in EVENT.c]
    return sa.insert(EVENT).values(
        [{name: sa.bindparam(f"{name}_{place}") for name in names} for place in range(count)]
    )


def _beginning(dialect: sa.Dialect) -> sa.ClauseElement:
    begun = sa.select(EVENT.c.number).where(_OF_THIS, EVENT.c.key == sa.bindparam("new_turn"))
    insert = insert_of(dialect)(RUN).values(
        _COUNTED
        | _NEXT
        | {
            "run": sa.bindparam("this"),
            "first": 1,
            "last": _SIZE,
            "share": sa.bindparam("share"),
            "works": sa.bindparam("works"),
        }
    )
    adding = insert.on_conflict_do_update(
        index_elements=[RUN.c.run],
        set_=_COUNTED
        | _NEXT
        | {
            "share": insert.excluded.share,
            "works": insert.excluded.works,
            "queued": sa.case((_IS_QUEUED, sa.null()), else_=RUN.c.queued),
            "queued_event": sa.case((_IS_QUEUED, sa.null()), else_=RUN.c.queued_event),
            "look_at": _later_than("at"),
        },
        where=sa.and_(
            ~begun.exists(),
            RUN.c.state.is_(None),
            sa.or_(RUN.c.queued.is_(None), _IS_QUEUED, RUN.c.look_at.is_(None)),
        ),
    )
    made: sa.ClauseElement = adding.returning(RUN.c.first, RUN.c.last)
    return made


ADD = RowsStatement(_adding)
BEGIN = Statement(_beginning)
"""Begins a turn on SQLite, and reserves its first event's number; returns the first and last number."""
_SET_TURN = ", ".join(TURN_COLUMNS)
_TURN_OR_NONE = ", ".join(
    f"CASE WHEN NOT ends THEN anabranch_run.{name} END" for name in TURN_COLUMNS
)
APPEND_POSTGRES = Statement(
    sa.text(f"""
    WITH new AS (
        SELECT * FROM unnest(
            CAST(:runs AS bytea[]), CAST(:counts AS bigint[]), CAST(:names AS bytea[]),
            CAST(:owners AS bytea[]), CAST(:ends AS boolean[]),
            CAST(:looks AS double precision[])
        ) WITH ORDINALITY AS new (run, count, name, holder, ends, look_at, place)
    ), head AS (
        INSERT INTO anabranch_run (run, first, last, mark, at)
        SELECT run, 1, count, :mark, :now FROM new
        WHERE holder IS NULL
            OR EXISTS (SELECT 1 FROM anabranch_run AS known WHERE known.run = new.run)
        ORDER BY run
        ON CONFLICT (run) DO UPDATE SET last = anabranch_run.last + excluded.last,
            mark = excluded.mark, at = excluded.at,
            ({_SET_TURN}, look_at) = (
                SELECT {_TURN_OR_NONE}, least(anabranch_run.look_at, new.look_at)
                FROM new WHERE new.run = anabranch_run.run
            )
        WHERE (SELECT holder FROM new WHERE new.run = anabranch_run.run) IS NULL
            OR (SELECT holder FROM new WHERE new.run = anabranch_run.run) = anabranch_run.owner
        RETURNING run, first, last, state, mark
    ), added AS (
        INSERT INTO anabranch_event (run, number, key, data, mark)
        SELECT run, last - count + item.number,
            CASE WHEN item.number = 1 THEN name END, item.data, mark
        FROM unnest(
            CAST(:places AS bigint[]), CAST(:numbers AS bigint[]), CAST(:events AS bytea[])
        ) AS item (place, number, data) JOIN new USING (place) JOIN head USING (run)
    )
    SELECT place, first, last, head.state, set_config('synchronous_commit', 'off', true),
        pg_notify('anabranch_run_events', md5(run) || ':' || last)
    FROM head JOIN new USING (run) ORDER BY place
""")  # noqa: S608 - the names of columns
)
"""Appends in one statement, whose commit does not wait.

The statement locks rows in one order, so that writers of the same runs do not deadlock.
"""

BEGIN_POSTGRES = Statement(
    sa.text(f"""
    WITH known AS (
        SELECT last FROM anabranch_run WHERE run = CAST(:this AS bytea)
    ), head AS (
        INSERT INTO anabranch_run (run, first, last, mark, at, share, works, {_SET_TURN})
        SELECT CAST(:this AS bytea), 1, 1, :mark, :at, CAST(:share AS bytea), :works, CAST(:new_turn AS bytea), :new_state, :new_due,
            CAST(:new_owner AS bytea), :new_process, :new_attempt, CAST(:new_version AS bytea), :new_wakes_at
        WHERE NOT EXISTS (
            SELECT 1 FROM anabranch_event
            WHERE run = CAST(:this AS bytea) AND key = CAST(:new_turn AS bytea)
        )
        ON CONFLICT (run) DO UPDATE SET last = anabranch_run.last + 1, mark = excluded.mark,
            at = excluded.at, share = excluded.share, works = excluded.works,
            {", ".join(f"{name} = excluded.{name}" for name in TURN_COLUMNS)},
            queued = nullif(anabranch_run.queued, excluded.turn),
            queued_event = CASE WHEN anabranch_run.queued = excluded.turn THEN NULL
                ELSE anabranch_run.queued_event END,
            look_at = CASE WHEN anabranch_run.look_at > excluded.at THEN anabranch_run.look_at END
        WHERE anabranch_run.last = (SELECT last FROM known) AND anabranch_run.state IS NULL
            AND (coalesce(anabranch_run.queued = excluded.turn, true)
                OR anabranch_run.look_at IS NULL)
        RETURNING run, first, last, mark
    ), added AS (
        INSERT INTO anabranch_event (run, number, key, data, mark)
        SELECT run, last, CAST(:new_turn AS bytea), CAST(:event AS bytea), mark FROM head
    )
    SELECT first, last,
        set_config('synchronous_commit', 'off', true),
        pg_notify('anabranch_run_events', md5(run) || ':' || last)
    FROM head
""")  # noqa: S608 - the names of columns
)
"""Begins a turn and adds an event in one statement, as :data:`APPEND_POSTGRES` adds events.

The statement's snapshot tells whether the key has an event. The snapshot is still right if the run's
last number has not changed when the row is locked.
"""
