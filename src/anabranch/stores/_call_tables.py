"""The tables of calls, and the SQL that reads and writes them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import sqlalchemy as sa

from anabranch._durable import ENDS_LEASE, ENDS_ROUND, OPEN, TRANSITIONS, CallEvent, CallState
from anabranch.stores._sql import Opaque, Statement, insert_first, metadata, numbered, partial_index


def _quoted(states: Iterable[CallState]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


# The conditions of partial indexes: a query uses such an index if it repeats the condition.
_IS_OPEN = sa.text(f"state IN ({_quoted(OPEN)})")
_IS_OVER = sa.text(f"state NOT IN ({_quoted(OPEN)})")
_ASKS = sa.text(f"state = '{CallState.WAITING}' AND asked IS NOT NULL")

CALL = sa.Table(
    "anabranch_call",
    metadata,
    sa.Column[str]("call_id", Opaque, primary_key=True),
    sa.Column[str]("tool", Opaque, nullable=False),
    sa.Column[str]("arguments", Opaque, nullable=False),
    sa.Column[float]("started", sa.Double(), nullable=False),
    sa.Column[float]("deadline", sa.Double(), nullable=False),
    sa.Column[str]("state", sa.Text, nullable=False),
    sa.Column[str]("principal", Opaque, nullable=False),
    sa.Column[str]("thread", Opaque, nullable=False),
    sa.Column[str]("node", Opaque, nullable=False),
    sa.Column[str]("version", Opaque, nullable=False),
    sa.Column[str]("failure", Opaque),
    sa.Column[bool]("stopped", sa.Boolean(), nullable=False),
    sa.Column[float]("asked", sa.Double()),
    sa.Column[str]("owner", Opaque),
    sa.Column[str]("process", sa.Text),
    sa.Column[float]("leased_until", sa.Double()),
    sa.Column[int]("opened", sa.Integer),
    sa.Column[str]("given", Opaque),
    sa.CheckConstraint(f"state IN ({_quoted(CallState)})", name="anabranch_call_state"),
    partial_index("anabranch_call_asked", "asked", where=_ASKS),
    partial_index("anabranch_call_open", "deadline", where=_IS_OPEN),
    partial_index("anabranch_call_over", "deadline", where=_IS_OVER),
    sa.Index("anabranch_call_started", "started", "call_id"),
)


def _of_call() -> sa.ForeignKey:
    return sa.ForeignKey("anabranch_call.call_id", ondelete="CASCADE")


ROUND = sa.Table(
    "anabranch_round",
    metadata,
    sa.Column[str]("call_id", Opaque, _of_call(), primary_key=True),
    sa.Column[int]("number", sa.Integer, primary_key=True),
    sa.Column[str]("reply", Opaque, nullable=False),
    sa.Column[str]("state", Opaque, nullable=False),
    sa.Column[str]("notes", Opaque, nullable=False),
)
ANSWER = sa.Table(
    "anabranch_answer",
    metadata,
    sa.Column[str]("call_id", Opaque, _of_call(), primary_key=True),
    sa.Column[str]("step_id", Opaque, primary_key=True),
    sa.Column[str]("text", Opaque, nullable=False),
    sa.Column[str]("by", Opaque, nullable=False),
    sa.Column[int]("number", sa.Integer),
)
ENTRY = sa.Table(
    "anabranch_entry",
    metadata,
    numbered("id"),
    sa.Column[str]("call_id", Opaque, _of_call(), nullable=False),
    sa.Column[int]("number", sa.Integer, nullable=False),
    sa.Column[str]("step_id", Opaque, nullable=False),
    sa.Column[str]("text", Opaque, nullable=False),
    sa.UniqueConstraint("call_id", "step_id"),
    sa.Index("anabranch_entry_round", "call_id", "number", "id"),
)
UNDONE = sa.Table(
    "anabranch_undone",
    metadata,
    sa.Column[str]("call_id", Opaque, _of_call(), primary_key=True),
    sa.Column[str]("step_id", Opaque, primary_key=True),
)

_THIS = CALL.c.call_id == sa.bindparam("this")
_CALL = sa.select(*(column for column in CALL.c if column.name not in {"opened", "given"}))
FIND = Statement(_CALL.where(_THIS))
LOCK = Statement(sa.select(CALL.c.call_id).where(_THIS).with_for_update(key_share=True))

# -- states ----------------------------------------------------------------------------------

_IS_FREE = sa.or_(
    CALL.c.owner.is_(None),
    CALL.c.owner == sa.bindparam("new_owner"),
    CALL.c.leased_until <= sa.bindparam("now"),
)
_IS_OWNED = CALL.c.owner == sa.bindparam("old_owner")
_UNLEASED = {name: sa.null() for name in ("owner", "process", "leased_until")}
_DEADLINE = sa.func.coalesce(sa.bindparam("new_deadline", type_=sa.Double), CALL.c.deadline)


def _moved(event: CallEvent) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[str]]:
    """Return a condition on the present state of a call, and its next state, for one event."""
    table = TRANSITIONS[event]
    before = CALL.c.state.in_([sa.literal_column(f"'{state}'") for state in sorted(table)])
    ends = set(table.values())
    if len(ends) == 1:
        return before, sa.literal_column(f"'{ends.pop()}'")
    arms: list[tuple[sa.ColumnElement[bool], sa.ColumnElement[str]]] = [
        (CALL.c.state == sa.literal_column(f"'{one}'"), sa.literal_column(f"'{then}'"))
        for one, then in sorted(table.items())
    ]
    return before, sa.case(*arms)


def _leasing(event: CallEvent) -> sa.Update:
    before, after = _moved(event)
    return (
        sa.update(CALL)
        .where(_THIS, before, _IS_FREE)
        .values(
            state=after,
            owner=sa.bindparam("new_owner"),
            process=sa.bindparam("new_process"),
            leased_until=sa.bindparam("until"),
        )
    )


def _moving(event: CallEvent) -> sa.Update:
    before, after = _moved(event)
    return (
        sa.update(CALL)
        .where(_THIS, before, _IS_OWNED)
        .values(state=after, deadline=_DEADLINE, **_UNLEASED)
    )


MOVE = {event: Statement(_moving(event)) for event in ENDS_LEASE}
"""The statement with which the owner of a lease moves a call, by event."""
END = {
    event: Statement(_moving(event).values(asked=sa.bindparam("new_asked", type_=sa.Double)))
    for event in ENDS_ROUND
}
"""The statement that ends a round, by event."""
LEASE = Statement(
    _leasing(CallEvent.OPEN).values(opened=sa.bindparam("which"), given=sa.bindparam("digest"))
)
TAKE_TO_UNDO = Statement(
    _leasing(CallEvent.UNDO)
    .where(CALL.c.deadline <= sa.bindparam("due"))
    .values(stopped=sa.or_(CALL.c.stopped, sa.bindparam("stops", type_=sa.Boolean)))
)
SHORTEN = Statement(
    sa.update(CALL)
    .where(_THIS, sa.not_(_IS_FREE), CALL.c.leased_until > sa.bindparam("until"))
    .values(leased_until=sa.bindparam("until"))
)
RENEW = Statement(
    sa.update(CALL).where(_THIS, _IS_OWNED).values(leased_until=sa.bindparam("until"))
)
_fails, _failed = _moved(CallEvent.FAIL)
FAIL = Statement(
    sa.update(CALL)
    .where(_THIS, _fails, _IS_OWNED)
    .values(
        state=_failed,
        failure=sa.case(
            (CALL.c.state == sa.literal_column(f"'{CallState.UNDOING}'"), CALL.c.failure),
            else_=sa.bindparam("error", type_=Opaque),
        ),
    )
)
ADOPT = Statement(
    sa.update(CALL)
    .where(_THIS, _IS_OPEN, _IS_OWNED)
    .values(version=sa.bindparam("new_version", type_=Opaque))
)
_NEW_DEADLINE = sa.bindparam("new_deadline", type_=sa.Double)
POSTPONE = Statement(
    sa.update(CALL).where(_THIS, CALL.c.deadline < _NEW_DEADLINE).values(deadline=_NEW_DEADLINE)
)
HASTEN = Statement(
    sa.update(CALL)
    .where(_THIS, CALL.c.state == sa.bindparam("in_state"), CALL.c.deadline > _NEW_DEADLINE)
    .values(deadline=_NEW_DEADLINE)
)

# -- rounds, entries, answers ----------------------------------------------------------------

_ENDED = (ROUND.c.number, ROUND.c.reply, ROUND.c.state, ROUND.c.notes)
_ROUND = sa.select(*_ENDED).where(ROUND.c.call_id == sa.bindparam("this"))
ROUND_NUMBER = Statement(_ROUND.where(ROUND.c.number == sa.bindparam("which")))
LAST_ROUND = Statement(_ROUND.order_by(ROUND.c.number.desc()).limit(1))
CALL_AND_ROUND = Statement(
    sa.select(*_CALL.selected_columns, *_ENDED)
    .select_from(
        CALL.outerjoin(
            ROUND,
            sa.and_(ROUND.c.call_id == CALL.c.call_id, ROUND.c.number == sa.bindparam("which")),
        )
    )
    .where(_THIS)
)
ENTRIES = Statement(
    sa.select(ENTRY.c.step_id, ENTRY.c.text)
    .where(ENTRY.c.call_id == sa.bindparam("this"), ENTRY.c.number == sa.bindparam("which"))
    .order_by(ENTRY.c.id)
)
ONE_ENTRY = Statement(
    sa.select(ENTRY.c.text).where(
        ENTRY.c.call_id == sa.bindparam("this"), ENTRY.c.step_id == sa.bindparam("step")
    )
)
ANSWERS = Statement(
    sa.select(ANSWER.c.step_id, ANSWER.c.text, ANSWER.c.by, ANSWER.c.number).where(
        ANSWER.c.call_id == sa.bindparam("this")
    )
)
TAKE_ANSWERS = Statement(
    sa.update(ANSWER)
    .where(
        ANSWER.c.call_id == sa.bindparam("this"),
        ANSWER.c.step_id == sa.bindparam("step"),
        ANSWER.c.number.is_(None),
    )
    .values(number=sa.bindparam("which"))
)
OPENED_WITH = Statement(sa.select(CALL.c.opened, CALL.c.given).where(_THIS))
# The answers of the round that was opened last, if no entry is recorded in it.
_LEFT = sa.and_(
    ANSWER.c.call_id == sa.bindparam("this"),
    ANSWER.c.number == sa.select(CALL.c.opened).where(_THIS).scalar_subquery(),
    ~sa.exists().where(ENTRY.c.call_id == ANSWER.c.call_id, ENTRY.c.number == ANSWER.c.number),
)
DROP_ANSWERS = Statement(sa.delete(ANSWER).where(_LEFT, ANSWER.c.by == sa.bindparam("client")))
RETURN_ANSWERS = Statement(sa.update(ANSWER).where(_LEFT).values(number=sa.null()))
UNDONE_STEPS = Statement(
    sa.select(UNDONE.c.step_id).where(UNDONE.c.call_id == sa.bindparam("this"))
)

# -- all calls -------------------------------------------------------------------------------

EXPIRED = Statement(
    _CALL.where(_IS_OPEN, CALL.c.deadline <= sa.bindparam("now"))
    .order_by(CALL.c.deadline, CALL.c.call_id)
    .limit(sa.bindparam("most"))
)
_asking = CALL.alias("asking")
_LONGEST = sa.select(_asking.c.asked).where(_ASKS).order_by(_asking.c.asked).limit(1)
OPEN_CALLS = Statement(
    sa.select(sa.func.count(), sa.func.min(CALL.c.started), _LONGEST.scalar_subquery()).where(
        _IS_OPEN
    )
)
PRUNE = Statement(
    sa.delete(CALL).where(
        CALL.c.call_id.in_(
            sa.select(CALL.c.call_id)
            .where(_IS_OVER, CALL.c.deadline < sa.bindparam("before"))
            .order_by(CALL.c.deadline, CALL.c.call_id)
            .limit(sa.bindparam("most"))
            # Another process prunes locked rows; SQLite ignores this.
            .with_for_update(skip_locked=True)
        )
    )
)


@cache
def listing(given: frozenset[str], states: frozenset[CallState] | None) -> Statement:
    """Return the statement that lists calls by the parameters ``given``."""
    started, call_id = CALL.c.started, CALL.c.call_id
    conditions = {
        "tool": CALL.c.tool == sa.bindparam("tool"),
        "begins": sa.and_(call_id >= sa.bindparam("begins"), call_id < sa.bindparam("beyond")),
        "this": sa.or_(
            started < sa.bindparam("begun"),
            sa.and_(started == sa.bindparam("begun"), call_id < sa.bindparam("this")),
        ),
    }
    page = _CALL.where(*(conditions[name] for name in conditions if name in given))
    if states is not None:
        page = page.where(sa.text(f"state IN ({_quoted(states)})") if states else sa.false())
    return Statement(page.order_by(started.desc(), call_id.desc()).limit(sa.bindparam("most")))


INSERT_CALL, INSERT_ROUND, INSERT_ANSWER = map(insert_first, (CALL, ROUND, ANSWER))
INSERT_ENTRY, INSERT_UNDONE = insert_first(ENTRY), insert_first(UNDONE)
INSERT_ENTRIES = Statement(
    sa.text("""
    WITH this AS (
        SELECT call_id FROM anabranch_call
        WHERE call_id = :call_id AND (
            CAST(:given AS bytea) IS NULL OR opened IS DISTINCT FROM :number OR given = :given
        )
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
)
