"""The tables of threads, and the SQL that writes to them; ``_tree_queries.py`` has the SQL that reads.

Rows point at each other by ``seq``, a growing number: a parent has a smaller number than its
children, an older sibling a smaller number than a younger. So the order of numbers is the order of
the tree, and a path is found without comparing ids. A statement that writes first locks the
thread's row (Postgres; SQLite has one writer). So the order of numbers is also the order of
commits, and no two writers of a thread deadlock.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from anabranch.stores._columns import Opaque, metadata
from anabranch.stores._statements import insert_of


def _seq() -> sa.Column[int]:
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Column[int]("seq", number, sa.Identity(), primary_key=True)


def _of_thread() -> sa.ForeignKey:
    return sa.ForeignKey("anabranch_thread.seq", ondelete="CASCADE")


def _of_node() -> sa.ForeignKey:
    return sa.ForeignKey("anabranch_node.seq", ondelete="CASCADE")


THREAD = sa.Table(
    "anabranch_thread",
    metadata,
    _seq(),
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
    _seq(),
    sa.Column[str]("id", Opaque, nullable=False, unique=True),
    sa.Column[int]("thread", sa.BigInteger(), _of_thread(), nullable=False),
    # Not ON DELETE CASCADE: SQLite cascades down at most a thousand generations.
    sa.Column[int]("parent", sa.BigInteger(), sa.ForeignKey("anabranch_node.seq")),
    sa.Column[str]("kind", sa.Text, nullable=False),
    sa.Column[bytes]("content", sa.LargeBinary, nullable=False),
    sa.Column[float]("created_at", sa.Double(), nullable=False),
    sa.Column[bytes]("usage", sa.LargeBinary),
    sa.Column[bytes]("data", sa.LargeBinary),
    sa.Index("anabranch_node_thread", "thread", "seq"),
    sa.Index("anabranch_node_parent", "parent", "seq"),
)
RESULT = sa.Table(
    "anabranch_result",
    metadata,
    sa.Column[int]("node", sa.BigInteger(), _of_node(), primary_key=True, autoincrement=False),
    sa.Column[str]("tool_use_id", Opaque, primary_key=True),
    sa.Column[bytes]("content", sa.LargeBinary, nullable=False),
    sa.Column[bool]("is_error", sa.Boolean(), nullable=False),
    sa.Column[bytes]("pending", sa.LargeBinary),
)
REF = sa.Table(
    "anabranch_ref",
    metadata,
    sa.Column[int]("thread", sa.BigInteger(), _of_thread(), primary_key=True, autoincrement=False),
    sa.Column[str]("name", Opaque, primary_key=True),
    sa.Column[int]("node", sa.BigInteger(), _of_node(), nullable=False),
    sa.Index("anabranch_ref_node", "node"),
)
FILE = sa.Table(
    "anabranch_file",
    metadata,
    sa.Column[int]("thread", sa.BigInteger(), _of_thread(), primary_key=True, autoincrement=False),
    sa.Column[bytes]("digest", sa.LargeBinary, primary_key=True),
    sa.Column[bytes]("content", sa.LargeBinary, nullable=False),
)

# -- writing ---------------------------------------------------------------------------------


class WritingStatements:
    """The statements that insert, in the database's dialect; ``rowcount`` counts the inserted rows."""

    def __init__(self, *, is_postgresql: bool) -> None:
        self._insert = insert_of(is_postgresql=is_postgresql)
        self.add_thread: sa.Insert = self._counted(
            self._insert(THREAD).inline().on_conflict_do_nothing()
        )
        self.add_node: sa.Insert = self._add_node()
        self.set_result: sa.Insert = self._set_result()
        self.add_file: sa.Insert = self._add_file()
        self.set_ref: sa.Insert = self._set_ref()
        self.set_ref_of_thread: sa.Insert = self._set_ref(THREAD.c.id == sa.bindparam("this"))

    def _add_node(self) -> sa.Insert:
        """Insert no row if the thread is missing, if it lacks the parent, or if the id is taken."""
        parent = NODE.alias("parent")
        parent_id = sa.bindparam("parent_id", type_=Opaque)
        follows_on = sa.and_(parent.c.thread == THREAD.c.seq, parent.c.id == parent_id)
        plain = [NODE.c[name] for name in ("id", "kind", "content", "created_at", "usage", "data")]
        source = (
            sa.select(
                *(sa.bindparam(f"new_{column.name}", type_=column.type) for column in plain),
                THREAD.c.seq,
                parent.c.seq,
            )
            .select_from(THREAD.outerjoin(parent, follows_on))
            .where(
                THREAD.c.id == sa.bindparam("thread_id"),
                sa.or_(parent_id.is_(None), parent.c.seq.is_not(None)),
            )
            .with_for_update(key_share=True, of=THREAD)
        )
        columns = [*plain, NODE.c.thread, NODE.c.parent]
        added = self._insert(NODE).from_select(columns, source).on_conflict_do_nothing()
        return self._counted(added)

    def _set_result(self) -> sa.Insert:
        plain = [RESULT.c[name] for name in ("tool_use_id", "content", "is_error", "pending")]
        source = (
            sa.select(
                NODE.c.seq,
                *(sa.bindparam(f"new_{column.name}", type_=column.type) for column in plain),
            )
            .select_from(NODE.join(THREAD, THREAD.c.seq == NODE.c.thread))
            .where(NODE.c.id == sa.bindparam("node_id"))
            .with_for_update(key_share=True, of=THREAD)
        )
        added = self._insert(RESULT).from_select([RESULT.c.node, *plain], source)
        new = added.excluded
        changes = {
            RESULT.c.content: new.content,
            RESULT.c.is_error: new.is_error,
            RESULT.c.pending: new.pending,
        }
        key = [RESULT.c.node, RESULT.c.tool_use_id]
        return self._counted(added.on_conflict_do_update(index_elements=key, set_=changes))

    def _add_file(self) -> sa.Insert:
        source = (
            sa.select(
                THREAD.c.seq,
                sa.bindparam("new_digest", type_=FILE.c.digest.type),
                sa.bindparam("new_content", type_=FILE.c.content.type),
            )
            .where(THREAD.c.id == sa.bindparam("this"))
            .with_for_update(key_share=True, of=THREAD)
        )
        columns = [FILE.c.thread, FILE.c.digest, FILE.c.content]
        added: sa.Insert = self._insert(FILE).from_select(columns, source).on_conflict_do_nothing()
        return added

    def _set_ref(self, *conditions: sa.ColumnElement[bool]) -> sa.Insert:
        source = (
            sa.select(NODE.c.thread, sa.bindparam("new_name", type_=Opaque), NODE.c.seq)
            .select_from(NODE.join(THREAD, THREAD.c.seq == NODE.c.thread))
            .where(NODE.c.id == sa.bindparam("node_id"), *conditions)
            .with_for_update(key_share=True, of=THREAD)
        )
        added = self._insert(REF).from_select([REF.c.thread, REF.c.name, REF.c.node], source)
        changes = {REF.c.node: added.excluded.node}
        key = [REF.c.thread, REF.c.name]
        return self._counted(added.on_conflict_do_update(index_elements=key, set_=changes))

    @staticmethod
    def _counted(statement: Any) -> sa.Insert:  # noqa: ANN401  # each database's own Insert
        counted: sa.Insert = statement.execution_options(preserve_rowcount=True)
        return counted


_THIS_NODE = NODE.c.id == sa.bindparam("this")
_THIS_THREAD = THREAD.c.id == sa.bindparam("this")
THREAD_SEQ = sa.select(THREAD.c.seq).where(_THIS_THREAD).scalar_subquery()

LOCK_THREAD_OF = (
    sa.select(THREAD.c.seq)
    .select_from(NODE.join(THREAD, THREAD.c.seq == NODE.c.thread))
    .where(_THIS_NODE)
    .with_for_update(key_share=True, of=THREAD)
)
# A node below a question or an answer also follows the node that called the tool.
SETTLE = sa.text("""
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
""").bindparams(sa.bindparam("this", type_=Opaque))
FILES = sa.select(FILE.c.digest, FILE.c.content).where(
    FILE.c.thread == THREAD_SEQ, FILE.c.digest.in_(sa.bindparam("digests", expanding=True))
)
DELETE_REF = sa.delete(REF).where(
    REF.c.thread == THREAD_SEQ, REF.c.name == sa.bindparam("old_name")
)
DELETE_THREAD = sa.delete(THREAD).where(_THIS_THREAD)
DELETE_SUBTREE = (
    sa.text("""
    DELETE FROM anabranch_node WHERE seq IN (
        WITH RECURSIVE below (seq) AS (
            SELECT seq FROM anabranch_node WHERE id = :this
            UNION ALL
            SELECT node.seq FROM below JOIN anabranch_node AS node ON node.parent = below.seq
        )
        SELECT seq FROM below
    )
""")
    .bindparams(sa.bindparam("this", type_=Opaque))
    .execution_options(preserve_rowcount=True)
)
