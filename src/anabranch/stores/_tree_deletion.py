"""Deletes a subtree of a thread, and the files to which only the subtree refers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sqlalchemy as sa

from anabranch.stores._sql import Opaque
from anabranch.stores._tree_rows import digests_of
from anabranch.stores._tree_tables import FILE, NODE, RESULT, THREAD

_ROWS = 200
"""Rows that a search for references holds at the same time."""

_LOCK = (
    sa.select(NODE.c.seq, NODE.c.thread)
    .select_from(NODE.join(THREAD, THREAD.c.seq == NODE.c.thread))
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
_DELETE_NODES = (
    sa.delete(NODE).where(NODE.c.seq.in_(_SUBTREE)).execution_options(preserve_rowcount=True)
)
_HAS_FILES = sa.select(sa.exists().where(FILE.c.thread == sa.bindparam("thread")))
_DELETE_FILES = sa.delete(FILE).where(
    FILE.c.thread == sa.bindparam("thread"),
    FILE.c.digest.in_(sa.bindparam("digests", expanding=True)),
)


def _contents(nodes: sa.Select[tuple[int]]) -> sa.Executable:
    return sa.union_all(
        sa.select(NODE.c.content).where(NODE.c.seq.in_(nodes)),
        sa.select(RESULT.c.content).where(RESULT.c.node.in_(nodes)),
        sa.select(RESULT.c.pending).where(RESULT.c.node.in_(nodes), RESULT.c.pending.is_not(None)),
    ).execution_options(yield_per=_ROWS)


_CONTENTS_OF_SUBTREE = _contents(_SUBTREE)
_CONTENTS_OF_THREAD = _contents(_THREAD)


def delete_subtree(connection: sa.Connection, node_id: str) -> int:
    """Delete a node and all nodes below it with their files; return the number of nodes."""
    # A separate statement, so that the next ones see the nodes added during the wait for the lock.
    found = connection.execute(_LOCK, {"this": node_id}).first()
    if found is None:
        return 0
    top, thread = found
    of_files: set[str] = set()
    if connection.scalar(_HAS_FILES, {"thread": thread}):
        for digests in _digests(connection, _CONTENTS_OF_SUBTREE, {"top": top}):
            of_files |= digests
    deleted = connection.execute(_DELETE_NODES, {"top": top}).rowcount
    if of_files:
        for digests in _digests(connection, _CONTENTS_OF_THREAD, {"thread": thread}):
            of_files -= digests
        gone = [bytes.fromhex(digest) for digest in of_files]
        connection.execute(_DELETE_FILES, {"thread": thread, "digests": gone})
    return deleted


def _digests(
    connection: sa.Connection, statement: sa.Executable, values: Mapping[str, int]
) -> Iterator[set[str]]:
    with connection.execute(statement, values) as rows:
        for some in rows.scalars().partitions():
            yield digests_of(some)
