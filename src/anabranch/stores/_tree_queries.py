"""The SQL that reads threads; ``_tree_tables.py`` has the tables and the SQL that writes.

Statements that return nodes are plain text and return the driver's values. A path of a thousand
rows thus skips SQLAlchemy's type conversion, and ``_tree_rows.py`` converts all rows together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from anabranch.stores._columns import Opaque, to_text
from anabranch.stores._tree_rows import to_nodes
from anabranch.stores._tree_tables import NODE, REF, THREAD, THREAD_SEQ
from anabranch.tree import Node, RefusedError, Thread, check_place

_NODE = """
    node.seq, node.parent, node.id, node.kind, node.content, node.created_at, node.usage, node.data
"""
"""The first columns of every row of a node; the thread's id follows if the caller does not know it."""

_RESULT = "result.tool_use_id, result.content, result.is_error, result.pending"


def _reading(statement: str, start: str = "") -> sa.TextClause:
    text = statement.format(node=_NODE, result=_RESULT, start=start)
    return sa.text(text).bindparams(sa.bindparam("this", type_=Opaque))


_THREADS = sa.select(
    THREAD.c.id, THREAD.c.created_at, THREAD.c.system_prompt, THREAD.c.title, THREAD.c.owner
)
FIND_THREAD = _THREADS.where(THREAD.c.id == sa.bindparam("this"))
LATEST_THREADS = _THREADS.order_by(THREAD.c.created_at.desc(), THREAD.c.seq.desc()).limit(
    sa.bindparam("most")
)
LATEST_WITH_OWNER = LATEST_THREADS.where(THREAD.c.owner == sa.bindparam("whose"))
LATEST_WITHOUT_OWNER = LATEST_THREADS.where(THREAD.c.owner.is_(None))
REFS = (
    sa.select(REF.c.name, NODE.c.id)
    .join_from(REF, NODE, NODE.c.seq == REF.c.node)
    .where(REF.c.thread == THREAD_SEQ)
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
""").bindparams(sa.bindparam("after", type_=sa.BigInteger))
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
).bindparams(sa.bindparam("at", type_=Opaque))
AROUND_REF = _reading(
    _AROUND,
    start="""
        FROM anabranch_thread AS thread
        JOIN anabranch_ref AS ref ON ref.thread = thread.seq AND ref.name = :at
        JOIN anabranch_node AS node ON node.seq = ref.node
        WHERE thread.id = :this
    """,
).bindparams(sa.bindparam("at", type_=Opaque))


def find_thread(connection: sa.Connection, thread_id: str) -> Thread | None:
    """Return the thread, or ``None`` if it does not exist."""
    row = connection.execute(FIND_THREAD, {"this": thread_id}).one_or_none()
    return None if row is None else Thread(*row)


def find_refs(connection: sa.Connection, thread_id: str) -> dict[str, str]:
    """Return the thread's refs: the nodes that they point at, by name."""
    return {row[0]: row[1] for row in connection.execute(REFS, {"this": thread_id})}


def find_node(connection: sa.Connection, node_id: str) -> Node | None:
    """Return the node, or ``None`` if it does not exist."""
    row = connection.execute(FIND_NODE, {"this": node_id}).one_or_none()
    if row is None:
        return None
    parents = {} if row[1] is None else {row[1]: to_text(row[9])}
    return to_nodes([row], to_text(row[8]), parents)[0]


def check(node: Node, parent: Node | None) -> None:
    """Check that ``node`` may follow ``parent``.

    Raises:
        RefusedError: if ``node`` may not follow there.
    """
    try:
        check_place(node, parent)
    except ValueError as error:
        raise RefusedError(f"Node {node.id!r} has no place there: {error}.") from error


def unknown_node(connection: sa.Connection, node_ids: Iterable[str]) -> RefusedError:
    """Return the error that names the first of ``node_ids`` that the store does not have."""
    missing = next((one for one in node_ids if find_node(connection, one) is None), None)
    return RefusedError(f"The store has no node {missing!r}.")


def refusal(connection: sa.Connection, nodes: Sequence[Node]) -> RefusedError:
    """Return the error that names the node that could not be added, after the rollback."""
    earlier: dict[str, Node] = {}
    for node in nodes:
        if node.id in earlier or find_node(connection, node.id) is not None:
            return RefusedError(f"The store has a node {node.id!r} already; nodes never change.")
        if find_thread(connection, node.thread_id) is None:
            return RefusedError(f"The store has no thread {node.thread_id!r}.")
        if node.parent_id is not None:
            parent = earlier.get(node.parent_id) or find_node(connection, node.parent_id)
            if parent is None:
                return RefusedError(f"The store has no node {node.parent_id!r} to follow on.")
            try:
                check(node, parent)
            except RefusedError as refused:
                return refused
        earlier[node.id] = node
    return RefusedError("Another writer was changing the nodes that these follow; try again.")
