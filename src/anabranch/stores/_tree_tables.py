"""The tables of threads, and the SQL that writes and reads them.

Rows point at each other by ``seq``, a growing number: the order of numbers is the order of the
tree, and a path is found without comparing ids. A statement that writes first locks the thread's
row (Postgres; SQLite has one writer). So the order of numbers is also the order of commits, and no
two writers of a thread deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from anabranch.stores._sql import Opaque, Statement, insert_first, insert_of, metadata, numbered


def _of(table: str) -> sa.ForeignKey:
    return sa.ForeignKey(f"anabranch_{table}.seq", ondelete="CASCADE")


THREAD = sa.Table(
    "anabranch_thread",
    metadata,
    numbered("seq"),
    sa.Column[str]("id", Opaque, nullable=False, unique=True),
    sa.Column[float]("created_at", sa.Double(), nullable=False),
    sa.Column[str]("system_prompt", Opaque),
    sa.Column[str]("title", Opaque, nullable=False),
    sa.Column[str]("owner", Opaque),
    sa.Index("anabranch_thread_latest", "created_at", "seq"),
    sa.Index("anabranch_thread_owner", "owner", "created_at", "seq"),
)
NODE = sa.Table(
    "anabranch_node",
    metadata,
    numbered("seq"),
    sa.Column[str]("id", Opaque, nullable=False, unique=True),
    sa.Column[int]("thread", sa.BigInteger(), _of("thread"), nullable=False),
    # Not ON DELETE CASCADE: SQLite cascades down at most a thousand generations.
    sa.Column[int]("parent", sa.BigInteger(), sa.ForeignKey("anabranch_node.seq")),
    sa.Column[str]("kind", sa.Text, nullable=False),
    sa.Column[bytes]("content", sa.LargeBinary, nullable=False),
    sa.Column[float]("created_at", sa.Double(), nullable=False),
    sa.Column[bytes]("usage", sa.LargeBinary),
    sa.Column[bytes]("data", sa.LargeBinary),
    # The end of a turn without a whole reply; a stopped turn has no error.
    sa.Column[bool]("has_turn_end", sa.Boolean(), nullable=False, server_default=sa.false()),
    sa.Column[str]("turn_error", Opaque),
    sa.Index("anabranch_node_thread", "thread", "seq"),
    sa.Index("anabranch_node_parent", "parent", "seq"),
)
RESULT = sa.Table(
    "anabranch_result",
    metadata,
    sa.Column[int]("node", sa.BigInteger(), _of("node"), primary_key=True, autoincrement=False),
    sa.Column[str]("tool_use_id", Opaque, primary_key=True),
    sa.Column[bytes]("content", sa.LargeBinary, nullable=False),
    sa.Column[bool]("is_error", sa.Boolean(), nullable=False),
    sa.Column[bytes]("pending", sa.LargeBinary),
)
REF = sa.Table(
    "anabranch_ref",
    metadata,
    sa.Column[int]("thread", sa.BigInteger(), _of("thread"), primary_key=True, autoincrement=False),
    sa.Column[str]("name", Opaque, primary_key=True),
    sa.Column[int]("node", sa.BigInteger(), _of("node"), nullable=False),
    sa.Index("anabranch_ref_node", "node"),
)
FILE = sa.Table(
    "anabranch_file",
    metadata,
    sa.Column[int]("thread", sa.BigInteger(), _of("thread"), primary_key=True, autoincrement=False),
    sa.Column[bytes]("digest", sa.LargeBinary, primary_key=True),
    sa.Column[bytes]("content", sa.LargeBinary, nullable=False),
)

_OF_NODE = NODE.join(THREAD, THREAD.c.seq == NODE.c.thread)
_THIS_NODE = NODE.c.id == sa.bindparam("this")
_THIS_THREAD = THREAD.c.id == sa.bindparam("this")
_THREAD_SEQ = sa.select(THREAD.c.seq).where(_THIS_THREAD).scalar_subquery()

# -- writing ---------------------------------------------------------------------------------


def _adding(
    table: sa.Table,
    columns: Sequence[sa.Column[Any]],
    source: sa.Select[Any],
    changes: Sequence[sa.Column[Any]] = (),
) -> Statement:
    """Return the statement that inserts the rows of ``source``, after it locks their thread.

    If the key of a row is taken, the statement replaces the columns ``changes``.
    """
    locked = source.with_for_update(key_share=True, of=THREAD)

    def make(dialect: sa.Dialect) -> sa.ClauseElement:
        added = insert_of(dialect)(table).from_select(columns, locked)
        new = {column: added.excluded[column.name] for column in changes}
        made: sa.Insert = (
            added.on_conflict_do_update(index_elements=[*table.primary_key], set_=new)
            if new
            else added.on_conflict_do_nothing()
        )
        return made

    return Statement(make)


def _new(columns: Sequence[sa.Column[Any]]) -> list[sa.BindParameter[Any]]:
    return [sa.bindparam(f"new_{column.name}", type_=column.type) for column in columns]


ADD_THREAD = insert_first(THREAD)
_plain = [NODE.c[name] for name in ("id", "kind", "content", "created_at", "usage", "data")]
_parent = NODE.alias("parent")
_parent_id = sa.bindparam("parent_id", type_=Opaque)
_follows_on = sa.and_(_parent.c.thread == THREAD.c.seq, _parent.c.id == _parent_id)
ADD_NODE = _adding(
    NODE,
    [*_plain, NODE.c.thread, NODE.c.parent],
    sa.select(*_new(_plain), THREAD.c.seq, _parent.c.seq)
    .select_from(THREAD.outerjoin(_parent, _follows_on))
    .where(
        THREAD.c.id == sa.bindparam("thread_id"),
        sa.or_(_parent_id.is_(None), _parent.c.seq.is_not(None)),
    ),
)
"""Inserts no row if the thread is missing, if it lacks the parent, or if the id is taken."""
_changes = [RESULT.c[name] for name in ("content", "is_error", "pending")]
SET_RESULT = _adding(
    RESULT,
    [RESULT.c.node, RESULT.c.tool_use_id, *_changes],
    sa.select(NODE.c.seq, *_new([RESULT.c.tool_use_id, *_changes]))
    .select_from(_OF_NODE)
    .where(NODE.c.id == sa.bindparam("node_id")),
    _changes,
)
ADD_FILE = _adding(
    FILE,
    [FILE.c.thread, FILE.c.digest, FILE.c.content],
    sa.select(THREAD.c.seq, *_new([FILE.c.digest, FILE.c.content])).where(_THIS_THREAD),
)
_pointing = (
    sa.select(NODE.c.thread, *_new([REF.c.name]), NODE.c.seq)
    .select_from(_OF_NODE)
    .where(NODE.c.id == sa.bindparam("node_id"))
)
_REF = [REF.c.thread, REF.c.name, REF.c.node]
SET_REF = _adding(REF, _REF, _pointing, [REF.c.node])
SET_REF_OF_THREAD = _adding(REF, _REF, _pointing.where(_THIS_THREAD), [REF.c.node])
# A node below a question or an answer also follows the node that called the tool.
SETTLE = Statement(
    sa.text("""
    UPDATE anabranch_result SET content = pending, pending = NULL
    WHERE pending IS NOT NULL AND node IN (
        WITH RECURSIVE above (seq, parent, kind) AS (
            SELECT seq, parent, kind FROM anabranch_node WHERE id = :this
            UNION ALL
            SELECT node.seq, node.parent, node.kind
            FROM above JOIN anabranch_node AS node ON node.seq = above.parent
            WHERE above.kind IN ('question', 'answer')
        )
        SELECT seq FROM above
    )
""")
)
END_TURN = Statement(
    sa.update(NODE)
    .where(_THIS_NODE)
    .values(
        has_turn_end=sa.bindparam("new_has_turn_end", type_=sa.Boolean()),
        turn_error=sa.bindparam("new_turn_error", type_=Opaque),
    )
)
DELETE_REF = Statement(
    sa.delete(REF).where(REF.c.thread == _THREAD_SEQ, REF.c.name == sa.bindparam("old_name"))
)
DELETE_THREAD = Statement(sa.delete(THREAD).where(_THIS_THREAD))

# -- reading ---------------------------------------------------------------------------------

_NODE = """
    node.seq, node.parent, node.id, node.kind, node.content, node.created_at, node.usage, node.data,
    node.has_turn_end, node.turn_error
"""
"""The first columns of every row of a node; the thread's id follows if the caller does not know it."""

_RESULT = "result.tool_use_id, result.content, result.is_error, result.pending"


def _reading(statement: str, start: str = "") -> Statement:
    return Statement(sa.text(statement.format(node=_NODE, result=_RESULT, start=start)))


_THREADS = sa.select(
    THREAD.c.id, THREAD.c.created_at, THREAD.c.system_prompt, THREAD.c.title, THREAD.c.owner
)
FIND_THREAD = Statement(_THREADS.where(_THIS_THREAD))
_LATEST = _THREADS.order_by(THREAD.c.created_at.desc(), THREAD.c.seq.desc()).limit(
    sa.bindparam("most")
)
LATEST_THREADS = Statement(_LATEST)
LATEST_WITH_OWNER = Statement(_LATEST.where(THREAD.c.owner == sa.bindparam("whose")))
LATEST_WITHOUT_OWNER = Statement(_LATEST.where(THREAD.c.owner.is_(None)))
REFS = Statement(
    sa.select(REF.c.name, NODE.c.id)
    .join_from(REF, NODE, NODE.c.seq == REF.c.node)
    .where(REF.c.thread == _THREAD_SEQ)
    .order_by(REF.c.name)
)
FIND_NODE = _reading("""
    SELECT {node}, thread.id, parent.id
    FROM anabranch_node AS node
    JOIN anabranch_thread AS thread ON thread.seq = node.thread
    LEFT JOIN anabranch_node AS parent ON parent.seq = node.parent
    WHERE node.id = :this
""")
CHILDREN = _reading("""
    SELECT {node}, thread.id
    FROM anabranch_node AS parent
    JOIN anabranch_thread AS thread ON thread.seq = parent.thread
    JOIN anabranch_node AS node ON node.parent = parent.seq
    WHERE parent.id = :this ORDER BY node.seq
""")
BEGINNINGS = _reading("""
    SELECT {node}
    FROM anabranch_thread AS thread
    JOIN anabranch_node AS node ON node.thread = thread.seq AND node.parent IS NULL
    WHERE thread.id = :this ORDER BY node.seq
""")
NODES = _reading("""
    SELECT {node}
    FROM anabranch_thread AS thread JOIN anabranch_node AS node ON node.thread = thread.seq
    WHERE thread.id = :this ORDER BY node.seq
""")
# The number of nodes of a thread up to the last node that a reader knows.
COUNT_UNTIL = _reading("""
    SELECT last.seq, (
        SELECT count(*) FROM anabranch_node AS node
        WHERE node.thread = last.thread AND node.seq <= last.seq
    )
    FROM anabranch_node AS last WHERE last.id = :this
""")
NODES_AFTER = _reading("""
    SELECT {node}, parent.id
    FROM anabranch_thread AS thread
    JOIN anabranch_node AS node ON node.thread = thread.seq
    LEFT JOIN anabranch_node AS parent ON parent.seq = node.parent
    WHERE thread.id = :this AND node.seq > :after ORDER BY node.seq
""")
RESULTS = _reading("""
    SELECT node.id, {result}
    FROM anabranch_thread AS thread
    JOIN anabranch_node AS node ON node.thread = thread.seq
    JOIN anabranch_result AS result ON result.node = node.seq
    WHERE thread.id = :this
""")
# A row for each result, and one for each node without a result. Only the first node has the
# thread's id, and the caller sorts the rows: the database would need longer for both.
PATH = _reading("""
    WITH RECURSIVE up (seq, parent) AS (
        SELECT seq, parent FROM anabranch_node WHERE id = :this
        UNION ALL
        SELECT node.seq, node.parent
        FROM up JOIN anabranch_node AS node ON node.seq = up.parent
    )
    SELECT {node}, CASE WHEN node.parent IS NULL THEN
        (SELECT thread.id FROM anabranch_thread AS thread WHERE thread.seq = node.thread) END,
        {result}
    FROM up
    JOIN anabranch_node AS node ON node.seq = up.seq
    LEFT JOIN anabranch_result AS result ON result.node = node.seq
""")
# A row for each result on the path, one for each node without a result, and one for each child of
# an open node. Only the first node of the path has the columns of the thread.
_AROUND = """
    WITH RECURSIVE up (seq, parent, kind, is_open) AS (
        SELECT node.seq, node.parent, node.kind, 1 {start}
        UNION ALL
        SELECT node.seq, node.parent, node.kind,
            CASE WHEN up.kind IN ('question', 'answer') THEN up.is_open ELSE 0 END
        FROM up JOIN anabranch_node AS node ON node.seq = up.parent
    )
    SELECT {node}, thread.id, thread.created_at, thread.system_prompt, thread.title, thread.owner,
        {result}, 0
    FROM up
    JOIN anabranch_node AS node ON node.seq = up.seq
    LEFT JOIN anabranch_thread AS thread ON thread.seq = node.thread AND node.parent IS NULL
    LEFT JOIN anabranch_result AS result ON result.node = node.seq
    UNION ALL
    SELECT {node}, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 1
    FROM up JOIN anabranch_node AS node ON node.parent = up.seq
    WHERE up.is_open = 1
"""
AROUND = _reading(
    _AROUND,
    start="""
        FROM anabranch_thread AS thread
        JOIN anabranch_node AS node ON node.thread = thread.seq AND node.id = :at
        WHERE thread.id = :this
    """,
)
AROUND_REF = _reading(
    _AROUND,
    start="""
        FROM anabranch_thread AS thread
        JOIN anabranch_ref AS ref ON ref.thread = thread.seq AND ref.name = :at
        JOIN anabranch_node AS node ON node.seq = ref.node
        WHERE thread.id = :this
    """,
)
FILES = sa.select(FILE.c.digest, FILE.c.content).where(
    FILE.c.thread == _THREAD_SEQ, FILE.c.digest.in_(sa.bindparam("digests", expanding=True))
)

# -- deleting a subtree -----------------------------------------------------------------------

_ROWS = 200
"""Rows that a search for references holds at the same time."""

LOCK_THREAD_OF = (
    sa.select(NODE.c.seq, NODE.c.thread)
    .select_from(_OF_NODE)
    .where(NODE.c.id == sa.bindparam("this", type_=Opaque))
    .with_for_update(key_share=True, of=THREAD)
)
_BELOW = (
    sa.select(NODE.c.seq).where(NODE.c.seq == sa.bindparam("top")).cte(recursive=True, nesting=True)
)
_SUBTREE = sa.select(
    _BELOW.union_all(sa.select(NODE.c.seq).where(NODE.c.parent == _BELOW.c.seq)).c.seq
)
_THREAD = sa.select(NODE.c.seq).where(NODE.c.thread == sa.bindparam("thread"))
DELETE_NODES = (
    sa.delete(NODE).where(NODE.c.seq.in_(_SUBTREE)).execution_options(preserve_rowcount=True)
)
HAS_FILES = sa.select(sa.exists().where(FILE.c.thread == sa.bindparam("thread")))
DELETE_FILES = sa.delete(FILE).where(
    FILE.c.thread == sa.bindparam("thread"),
    FILE.c.digest.in_(sa.bindparam("digests", expanding=True)),
)


def _contents(nodes: sa.Select[tuple[int]]) -> sa.Executable:
    return sa.union_all(
        sa.select(NODE.c.content).where(NODE.c.seq.in_(nodes)),
        sa.select(RESULT.c.content).where(RESULT.c.node.in_(nodes)),
        sa.select(RESULT.c.pending).where(RESULT.c.node.in_(nodes), RESULT.c.pending.is_not(None)),
    ).execution_options(yield_per=_ROWS)


CONTENTS_OF_SUBTREE = _contents(_SUBTREE)
CONTENTS_OF_THREAD = _contents(_THREAD)
