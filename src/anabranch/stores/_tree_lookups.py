"""Threads and nodes looked up one at a time, and why an append is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from anabranch.stores._columns import to_text
from anabranch.stores._tree_queries import FIND_NODE, FIND_THREAD, REFS
from anabranch.stores._tree_rows import to_nodes
from anabranch.tree import Node, RefusedError, Thread, check_place


def find_thread(connection: sa.Connection, thread_id: str) -> Thread | None:
    """Return the thread, if there is one."""
    row = connection.execute(FIND_THREAD, {"this": thread_id}).one_or_none()
    return None if row is None else Thread(*row)


def find_refs(connection: sa.Connection, thread_id: str) -> dict[str, str]:
    """Return the thread's names and the nodes that they point at."""
    return {row[0]: row[1] for row in connection.execute(REFS, {"this": thread_id})}


def find_node(connection: sa.Connection, node_id: str) -> Node | None:
    """Return the node, if there is one."""
    row = connection.execute(FIND_NODE, {"this": node_id}).one_or_none()
    if row is None:
        return None
    parents = {} if row[1] is None else {row[1]: to_text(row[9])}
    return to_nodes([row], to_text(row[8]), parents)[0]


def check(node: Node, parent: Node | None) -> None:
    """Check that ``node`` may follow ``parent``.

    Raises:
        RefusedError: it may not.
    """
    try:
        check_place(node, parent)
    except ValueError as error:
        raise RefusedError(f"Node {node.id!r} has no place there: {error}.") from error


def unknown_node(connection: sa.Connection, node_ids: Iterable[str]) -> RefusedError:
    """Return the error that names the first of the nodes that is not in the store."""
    missing = next((one for one in node_ids if find_node(connection, one) is None), None)
    return RefusedError(f"The store has no node {missing!r}.")


def refusal(connection: sa.Connection, nodes: Sequence[Node]) -> RefusedError:
    """Return the error that says which node could not be added, after the attempt was rolled back."""
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
    return RefusedError("What the nodes follow on was being changed by another writer; try again.")
