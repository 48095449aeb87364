"""Conversations in a database: the store behind the port :class:`~anabranch.tree.TreeStore`.

An append writes without reading first, and only a failed insert looks up the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from anabranch.errors import StoreError
from anabranch.stores import _tree_tables as sql
from anabranch.stores._database import InDatabase
from anabranch.stores._sql import Statement, optional_bytes, to_bytes, to_text
from anabranch.stores._threads import Work
from anabranch.stores._tree_rows import (
    digests_of,
    node_row,
    ref_row,
    result_row,
    thread_row,
    to_ends,
    to_nodes,
    to_path,
    to_results,
    to_surroundings,
    to_thread,
)
from anabranch.tree import (
    HEAD,
    NOT_MESSAGES,
    Node,
    Path,
    Ref,
    RefusedError,
    Result,
    Surroundings,
    Thread,
    Tree,
    TurnEnd,
    check_place,
)

T = TypeVar("T")


class _NoPlaceError(Exception):
    """The database has not added a node; the store finds the reason after the rollback."""


class Trees(InDatabase):
    async def create_thread(self, thread: Thread) -> None:
        if not await self._count(sql.ADD_THREAD, **thread_row(thread)):
            raise StoreError(f"The store has a thread {thread.id!r} already.")

    async def thread(self, thread_id: str) -> Thread | None:
        return await self.database.read(lambda connection: _find_thread(connection, thread_id))

    async def threads(self, limit: int) -> list[Thread]:
        return list(map(to_thread, await self._rows(sql.LATEST_THREADS, most=limit)))

    async def threads_of(self, owner: str | None, limit: int) -> list[Thread]:
        if owner is None:
            rows = await self._rows(sql.LATEST_WITHOUT_OWNER, most=limit)
        else:
            rows = await self._rows(sql.LATEST_WITH_OWNER, most=limit, whose=to_bytes(owner))
        return list(map(to_thread, rows))

    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        await self.append_after(lambda _: None, nodes, results, refs)

    async def append_after(
        self, first: Work[T], nodes: Sequence[Node], results: Sequence[Result], refs: Sequence[Ref]
    ) -> T:
        """Do ``first``, then append, in one transaction; return the result of ``first``."""

        def work(connection: sa.Connection) -> T:
            found = first(connection)
            try:
                if nodes:
                    self._add(connection, nodes)
                _set(connection, sql.SET_RESULT, map(result_row, results), results)
                _set(connection, sql.SET_REF, map(ref_row, refs), refs)
            except exc.IntegrityError as error:  # another writer deletes the parent
                raise _NoPlaceError from error
            return found

        try:
            return await self.database.write(work)
        except _NoPlaceError:
            raise await self.database.read(lambda connection: _refusal(connection, nodes)) from None

    def _add(self, connection: sa.Connection, nodes: Sequence[Node]) -> None:
        rows = [node_row(node) for node in nodes]
        new: dict[str | None, Node] = {node.id: node for node in nodes}
        if sql.ADD_NODE.count(connection, *rows) != len(nodes):
            raise _NoPlaceError
        # All branches of a fork have one parent, which is checked once.
        forked = {node.parent_id for node in nodes if node.kind == "branch"} - new.keys()
        there = {one: None if one is None else _find_node(connection, one) for one in forked}
        for node in nodes:
            parent = new.get(node.parent_id) or there.get(node.parent_id)
            if parent is not None or node.parent_id is None:
                _check(node, parent)
        parents = {node.parent_id for node in nodes if node.kind not in NOT_MESSAGES}
        settled = [one for one in parents if one is not None and one not in new]
        if settled:
            sql.SETTLE.count(connection, *({"this": to_bytes(one)} for one in settled))

    async def end_turn(self, node_id: str, end: TurnEnd | None) -> None:
        error = None if end is None else optional_bytes(end.error)
        changes = {"new_has_turn_end": end is not None, "new_turn_error": error}
        if not await self._count(sql.END_TURN, this=to_bytes(node_id), **changes):
            raise RefusedError(f"The store has no node {node_id!r}.")

    async def set_ref(self, thread_id: str, ref: Ref) -> None:
        if not await self._count(sql.SET_REF_OF_THREAD, this=to_bytes(thread_id), **ref_row(ref)):
            raise StoreError(f"The store has no node {ref.node_id!r} in a thread {thread_id!r}.")

    async def delete_ref(self, thread_id: str, name: str) -> bool:
        this, old_name = to_bytes(thread_id), to_bytes(name)
        return await self._count(sql.DELETE_REF, this=this, old_name=old_name) > 0

    async def refs(self, thread_id: str) -> dict[str, str]:
        return await self.database.read(lambda connection: _find_refs(connection, thread_id))

    async def node(self, node_id: str) -> Node | None:
        return await self.database.read(lambda connection: _find_node(connection, node_id))

    async def path(self, node_id: str) -> Path:
        rows = await self._rows(sql.PATH, this=to_bytes(node_id))
        if not rows:
            raise StoreError(f"The store has no node {node_id!r}.")
        return to_path(rows)

    async def around(self, thread_id: str, node_id: str | None = None) -> Surroundings | None:
        find = sql.AROUND_REF if node_id is None else sql.AROUND
        at = to_bytes(HEAD if node_id is None else node_id)
        rows = await self._rows(find, this=to_bytes(thread_id), at=at)
        return to_surroundings(rows) if rows else None

    async def children(self, node_id: str) -> list[Node]:
        rows = await self._rows(sql.CHILDREN, this=to_bytes(node_id))
        return to_nodes(rows, to_text(rows[0][10]), {rows[0][1]: node_id}) if rows else []

    async def beginnings(self, thread_id: str) -> list[Node]:
        rows = await self._rows(sql.BEGINNINGS, this=to_bytes(thread_id))
        return to_nodes(rows, thread_id)

    async def nodes_after(self, thread_id: str, known: Sequence[Node]) -> list[Node] | None:
        def work(connection: sa.Connection) -> list[Node] | None:
            after = 0
            if known:
                last = known[-1]
                if _find_node(connection, last.id) != last:
                    return None
                [(after, held)] = sql.COUNT_UNTIL.rows(connection, {"this": to_bytes(last.id)})
                if held != len(known):
                    return None
            values = {"this": to_bytes(thread_id), "after": after}
            rows = sql.NODES_AFTER.rows(connection, values)
            parents = {row[1]: to_text(row[10]) for row in rows if row[1] is not None}
            return to_nodes(rows, thread_id, parents)

        return await self.database.read_at_once(work)

    async def tree(self, thread_id: str) -> Tree:
        values = {"this": to_bytes(thread_id)}

        def work(connection: sa.Connection) -> Tree:
            thread = _find_thread(connection, thread_id)
            if thread is None:
                raise StoreError(f"The store has no thread {thread_id!r}.")
            rows = sql.NODES.rows(connection, values)
            nodes = to_nodes(rows, thread_id)
            results = to_results(sql.RESULTS.rows(connection, values))
            refs = _find_refs(connection, thread_id)
            return Tree(thread, tuple(nodes), results, refs, to_ends(rows))

        return await self.database.read_at_once(work)

    async def add_files(self, thread_id: str, files: Mapping[str, bytes]) -> None:
        def work(connection: sa.Connection) -> None:
            if _find_thread(connection, thread_id) is None:
                raise StoreError(f"The store has no thread {thread_id!r}.")
            for digest, content in files.items():
                row = {"new_digest": bytes.fromhex(digest), "new_content": content}
                sql.ADD_FILE.count(connection, {"this": to_bytes(thread_id), **row})

        await self.database.write(work)

    async def files(self, thread_id: str, digests: Collection[str]) -> dict[str, bytes]:
        values = {"this": thread_id, "digests": [bytes.fromhex(each) for each in digests]}

        def work(connection: sa.Connection) -> dict[str, bytes]:
            return {row[0].hex(): bytes(row[1]) for row in connection.execute(sql.FILES, values)}

        return await self.database.read(work)

    async def delete_thread(self, thread_id: str) -> bool:
        return await self._count(sql.DELETE_THREAD, this=to_bytes(thread_id)) > 0

    async def delete_subtree(self, node_id: str) -> int:
        return await self.database.write(lambda connection: _delete_subtree(connection, node_id))


def _find_thread(connection: sa.Connection, thread_id: str) -> Thread | None:
    found = sql.FIND_THREAD.rows(connection, {"this": to_bytes(thread_id)})
    return to_thread(found[0]) if found else None


def _find_refs(connection: sa.Connection, thread_id: str) -> dict[str, str]:
    found = sql.REFS.rows(connection, {"this": to_bytes(thread_id)})
    return {to_text(name): to_text(node_id) for name, node_id in found}


def _find_node(connection: sa.Connection, node_id: str) -> Node | None:
    for row in sql.FIND_NODE.rows(connection, {"this": to_bytes(node_id)}):
        parents = {} if row[1] is None else {row[1]: to_text(row[11])}
        return to_nodes([row], to_text(row[10]), parents)[0]
    return None


def _check(node: Node, parent: Node | None) -> None:
    """Raise ``RefusedError`` if ``node`` may not follow ``parent``."""
    try:
        check_place(node, parent)
    except ValueError as error:
        raise RefusedError(f"Node {node.id!r} cannot be added: {error}.") from error


def _set(
    connection: sa.Connection,
    statement: Statement,
    rows: Iterable[Mapping[str, Any]],
    at_nodes: Sequence[Result] | Sequence[Ref],
) -> None:
    if at_nodes and statement.count(connection, *rows) != len(at_nodes):
        node_ids = (each.node_id for each in at_nodes)
        missing = next((one for one in node_ids if _find_node(connection, one) is None), None)
        raise RefusedError(f"The store has no node {missing!r}.")


def _refusal(connection: sa.Connection, nodes: Sequence[Node]) -> RefusedError:
    """Return the error for the node that the database has not added, after the rollback."""
    earlier: dict[str, Node] = {}
    for node in nodes:
        if node.id in earlier or _find_node(connection, node.id) is not None:
            return RefusedError(f"The store has a node {node.id!r} already; nodes never change.")
        if _find_thread(connection, node.thread_id) is None:
            return RefusedError(f"The store has no thread {node.thread_id!r}.")
        if node.parent_id is not None:
            parent = earlier.get(node.parent_id) or _find_node(connection, node.parent_id)
            if parent is None:
                return RefusedError(
                    f"The store has no node {node.parent_id!r}, the parent of a new node."
                )
            try:
                _check(node, parent)
            except RefusedError as refused:
                return refused
        earlier[node.id] = node
    return RefusedError("Another writer was changing the parents of these nodes; try again.")


def _delete_subtree(connection: sa.Connection, node_id: str) -> int:
    """Delete a node and all nodes below it with their files; return the number of nodes."""
    # A separate statement, so that the next ones see the nodes added during the wait for the lock.
    found = connection.execute(sql.LOCK_THREAD_OF, {"this": node_id}).first()
    if found is None:
        return 0
    top, thread = found
    of_files: set[str] = set()
    if connection.scalar(sql.HAS_FILES, {"thread": thread}):
        for digests in _digests(connection, sql.CONTENTS_OF_SUBTREE, {"top": top}):
            of_files |= digests
    deleted = connection.execute(sql.DELETE_NODES, {"top": top}).rowcount
    if of_files:
        for digests in _digests(connection, sql.CONTENTS_OF_THREAD, {"thread": thread}):
            of_files -= digests
        gone = [bytes.fromhex(digest) for digest in of_files]
        connection.execute(sql.DELETE_FILES, {"thread": thread, "digests": gone})
    return deleted


def _digests(
    connection: sa.Connection, statement: sa.Executable, values: Mapping[str, int]
) -> Iterator[set[str]]:
    with connection.execute(statement, values) as rows:
        for some in rows.scalars().partitions():
            yield digests_of(some)
