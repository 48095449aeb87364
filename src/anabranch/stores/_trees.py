"""Conversations in a database: the store behind the port :class:`~anabranch.tree._tree_store.TreeStore`.

This module decides which statement runs when, and interprets its outcome. An append writes without
reading first: the insert finds thread and parent, and only a failed insert looks up the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from anabranch.errors import StoreError
from anabranch.stores._columns import to_bytes, to_text
from anabranch.stores._database import Database
from anabranch.stores._statements import Statement
from anabranch.stores._tree_queries import (
    AROUND,
    AROUND_REF,
    BEGINNINGS,
    CHILDREN,
    COUNT_UNTIL,
    LATEST_THREADS,
    LATEST_WITH_OWNER,
    LATEST_WITHOUT_OWNER,
    NODES,
    NODES_AFTER,
    PATH,
    RESULTS,
    check,
    find_node,
    find_refs,
    find_thread,
    refusal,
    unknown_node,
)
from anabranch.stores._tree_rows import (
    node_row,
    result_row,
    to_nodes,
    to_path,
    to_results,
    to_surroundings,
)
from anabranch.stores._tree_tables import (
    DELETE_REF,
    DELETE_SUBTREE,
    DELETE_THREAD,
    FILES,
    LOCK_THREAD_OF,
    SETTLE,
    WritingStatements,
)
from anabranch.tree import HEAD, Node, Path, Ref, Result, Surroundings, Thread, Tree

_NOT_MESSAGES = {"branch", "question", "answer"}
"""Kinds that may follow on a node that calls tools without being the next message."""


class _NoPlaceError(Exception):
    """A node could not be added; the reason is looked up after the rollback."""


class Trees:
    """Threads in a database; see the port for the methods.

    Attributes:
        database: stores the threads.
    """

    def __init__(self, database: Database) -> None:
        self.database: Database = database
        self._statements = WritingStatements(is_postgresql=database.is_postgresql)
        self._add_node = Statement(self._statements.add_node, database.dialect)
        self._set_result = Statement(self._statements.set_result, database.dialect)
        self._set_ref = Statement(self._statements.set_ref, database.dialect)
        self._settle = Statement(SETTLE, database.dialect)
        self._find_path = Statement(PATH, database.dialect)
        self._find_around = Statement(AROUND, database.dialect)
        self._find_around_ref = Statement(AROUND_REF, database.dialect)
        self._find_nodes_after = Statement(NODES_AFTER, database.dialect)

    async def create_thread(self, thread: Thread) -> None:
        row = {name: getattr(thread, name) for name in Thread.__slots__}
        statement = self._statements.add_thread
        if not await self.database.write_single(
            lambda connection: connection.execute(statement, row).rowcount
        ):
            raise StoreError(f"The store has a thread {thread.id!r} already.")

    async def thread(self, thread_id: str) -> Thread | None:
        return await self.database.read(lambda connection: find_thread(connection, thread_id))

    async def threads(self, limit: int) -> list[Thread]:
        return await self._threads(LATEST_THREADS, {"most": limit})

    async def threads_of(self, owner: str | None, limit: int) -> list[Thread]:
        if owner is None:
            return await self._threads(LATEST_WITHOUT_OWNER, {"most": limit})
        return await self._threads(LATEST_WITH_OWNER, {"most": limit, "whose": owner})

    async def _threads(self, statement: sa.Executable, values: Mapping[str, Any]) -> list[Thread]:
        return await self.database.read(
            lambda connection: [Thread(*row) for row in connection.execute(statement, values)]
        )

    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        def work(connection: sa.Connection) -> None:
            try:
                if nodes:
                    self._add(connection, nodes)
                self._set_results(connection, results)
                self._set_refs(connection, refs)
            except exc.IntegrityError as error:  # another writer deletes the parent
                raise _NoPlaceError from error

        try:
            await self.database.write(work)
        except _NoPlaceError:
            raise await self.database.read(lambda connection: refusal(connection, nodes)) from None

    def _add(self, connection: sa.Connection, nodes: Sequence[Node]) -> None:
        rows = [node_row(node) for node in nodes]
        new: dict[str | None, Node] = {node.id: node for node in nodes}
        if self._add_node.count(connection, *rows) != len(nodes):
            raise _NoPlaceError
        # All branches of a fork have one parent, which is checked once.
        forked = {node.parent_id for node in nodes if node.kind == "branch"} - new.keys()
        there = {one: None if one is None else find_node(connection, one) for one in forked}
        for node in nodes:
            parent = new.get(node.parent_id) or there.get(node.parent_id)
            if parent is not None or node.parent_id is None:
                check(node, parent)
        parents = {node.parent_id for node in nodes if node.kind not in _NOT_MESSAGES}
        settled = [one for one in parents if one is not None and one not in new]
        if settled:
            self._settle.count(connection, *({"this": to_bytes(one)} for one in settled))

    async def set_results(self, results: Sequence[Result]) -> None:
        await self.database.write(lambda connection: self._set_results(connection, results))

    def _set_results(self, connection: sa.Connection, results: Sequence[Result]) -> None:
        rows = [result_row(result) for result in results]
        if rows and self._set_result.count(connection, *rows) != len(rows):
            raise unknown_node(connection, (result.node_id for result in results))

    def _set_refs(self, connection: sa.Connection, refs: Sequence[Ref]) -> None:
        rows = [{"new_name": to_bytes(ref.name), "node_id": to_bytes(ref.node_id)} for ref in refs]
        if rows and self._set_ref.count(connection, *rows) != len(rows):
            raise unknown_node(connection, (ref.node_id for ref in refs))

    async def set_ref(self, thread_id: str, ref: Ref) -> None:
        values = {"this": thread_id, "new_name": ref.name, "node_id": ref.node_id}
        statement = self._statements.set_ref_of_thread
        if not await self.database.write_single(
            lambda connection: connection.execute(statement, values).rowcount
        ):
            raise StoreError(f"The store has no node {ref.node_id!r} in a thread {thread_id!r}.")

    async def delete_ref(self, thread_id: str, name: str) -> bool:
        return await self._delete(DELETE_REF, {"this": thread_id, "old_name": name}) > 0

    async def refs(self, thread_id: str) -> dict[str, str]:
        return await self.database.read(lambda connection: find_refs(connection, thread_id))

    async def node(self, node_id: str) -> Node | None:
        return await self.database.read(lambda connection: find_node(connection, node_id))

    async def path(self, node_id: str) -> Path:
        values = {"this": to_bytes(node_id)}
        rows = await self.database.read(lambda connection: self._find_path.rows(connection, values))
        if not rows:
            raise StoreError(f"The store has no node {node_id!r}.")
        return Path(*to_path(rows))

    async def around(self, thread_id: str, node_id: str | None = None) -> Surroundings | None:
        find = self._find_around_ref if node_id is None else self._find_around
        values = {"this": to_bytes(thread_id), "at": to_bytes(HEAD if node_id is None else node_id)}
        rows = await self.database.read(lambda connection: find.rows(connection, values))
        return to_surroundings(rows) if rows else None

    async def children(self, node_id: str) -> list[Node]:
        def work(connection: sa.Connection) -> list[Node]:
            rows = connection.execute(CHILDREN, {"this": node_id}).fetchall()
            return to_nodes(rows, to_text(rows[0][8]), {rows[0][1]: node_id}) if rows else []

        return await self.database.read(work)

    async def beginnings(self, thread_id: str) -> list[Node]:
        def work(connection: sa.Connection) -> list[Node]:
            rows = connection.execute(BEGINNINGS, {"this": thread_id}).fetchall()
            return to_nodes(rows, thread_id)

        return await self.database.read(work)

    async def nodes_after(self, thread_id: str, known: Sequence[Node]) -> list[Node] | None:
        def work(connection: sa.Connection) -> list[Node] | None:
            after = 0
            if known:
                last = known[-1]
                if find_node(connection, last.id) != last:
                    return None
                after, held = connection.execute(COUNT_UNTIL, {"this": last.id}).one()
                if held != len(known):
                    return None
            values = {"this": to_bytes(thread_id), "after": after}
            rows = self._find_nodes_after.rows(connection, values)
            parents = {row[1]: to_text(row[8]) for row in rows if row[1] is not None}
            return to_nodes(rows, thread_id, parents)

        return await self.database.read_at_once(work)

    async def tree(self, thread_id: str) -> Tree:
        values = {"this": thread_id}

        def work(connection: sa.Connection) -> Tree:
            thread = find_thread(connection, thread_id)
            if thread is None:
                raise StoreError(f"The store has no thread {thread_id!r}.")
            nodes = to_nodes(connection.execute(NODES, values).fetchall(), thread_id)
            results = to_results(connection.execute(RESULTS, values).fetchall())
            return Tree(thread, tuple(nodes), results, find_refs(connection, thread_id))

        return await self.database.read_at_once(work)

    async def add_files(self, thread_id: str, files: Mapping[str, bytes]) -> None:
        def work(connection: sa.Connection) -> None:
            if find_thread(connection, thread_id) is None:
                raise StoreError(f"The store has no thread {thread_id!r}.")
            for digest, content in files.items():
                values = {"new_digest": bytes.fromhex(digest), "new_content": content}
                connection.execute(self._statements.add_file, {"this": thread_id, **values})

        await self.database.write(work)

    async def files(self, thread_id: str, digests: Collection[str]) -> dict[str, bytes]:
        values = {"this": thread_id, "digests": [bytes.fromhex(each) for each in digests]}

        def work(connection: sa.Connection) -> dict[str, bytes]:
            return {row[0].hex(): bytes(row[1]) for row in connection.execute(FILES, values)}

        return await self.database.read(work)

    async def delete_thread(self, thread_id: str) -> bool:
        return await self._delete(DELETE_THREAD, {"this": thread_id}) > 0

    async def delete_subtree(self, node_id: str) -> int:
        values = {"this": node_id}

        def work(connection: sa.Connection) -> int:
            # A separate statement, so that the next one sees the nodes added during the wait.
            if connection.scalar(LOCK_THREAD_OF, values) is None:
                return 0
            return connection.execute(DELETE_SUBTREE, values).rowcount

        return await self.database.write(work)

    async def _delete(self, statement: sa.Delete, values: Mapping[str, Any]) -> int:
        return await self.database.write_single(
            lambda connection: connection.execute(statement, values).rowcount
        )

    async def close(self) -> None:
        await self.database.close()
