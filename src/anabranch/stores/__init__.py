"""Stores of calls, conversations, notes and branches, in SQLite or Postgres.

SQLite serves the processes of one machine, Postgres several machines. ``memory:`` is SQLite without
a file, so tests run the code that runs in production. The packages that use a store define its
interface: ``CallStore``, ``TreeStore``, ``RunEvents``, ``MemoryStore`` and ``BranchStore``.

    _engines.py          store URLs, the SQLAlchemy engine for a URL, and drivers' errors
    _threads.py          the threads of a database, and the batches that share a commit
    _processes.py        locks that show which processes are alive
    _database.py         transactions, and the tables of a new store
    _sql.py              column types, indexes, and statements that are compiled once
    _event_tails.py      the latest events in memory, for readers in this process
    _memory_search.py    the searches by words and by vectors

Each kind of record has its own store module, such as ``_calls.py``. Next to it are the tables with their
SQL (``_call_tables.py``) and, if the conversion is long, the records as rows (``_call_rows.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch._durable import CallStore, NewEvents, RunEvents
from anabranch._lazy import lazy_names
from anabranch.errors import StoreError, needs_extra

if TYPE_CHECKING:
    from anabranch.folding import BranchStore
    from anabranch.memory import MemoryStore
    from anabranch.stores._database import Database
    from anabranch.stores._engines import read_url, translated
    from anabranch.tree import Node, Ref, Result, TreeStore
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "anabranch.folding": "BranchStore",
            "anabranch.memory": "MemoryStore",
            "anabranch.tree": "Node Ref Result TreeStore",
            "._engines": "read_url translated",
        },
    )

__all__ = [
    "CallStore",
    "open_branch_store",
    "open_memory_store",
    "open_store",
    "open_stores",
    "open_tree_store",
]


def open_store(where: str | TreeStore) -> CallStore:
    """Open the store of calls, at a URL or in the database of a conversation store.

    A store at a URL connects when first used:

    ==========================  ===============================================================
    ``sqlite:///calls.db``      a file, relative to the working directory (``sqlite:////srv/c.db``
                                is absolute); made if it is missing, readable by its owner alone.
                                Safe with several processes on one machine, not on network drives
    ``postgresql://host/name``  a Postgres database; needs the extra ``postgres``
    ``memory:``                 lost when closed
    ==========================  ===============================================================

    Options follow a ``?``. ``timeout=10``: seconds to wait for a lock or for the server.
    ``synchronous=normal`` (SQLite): faster, but a power cut may lose the last records; a crash of
    the process loses none. Postgres URLs may have libpq's options.

    With a conversation store, the returned store shares its connections, until the conversation
    store is closed. If the conversation store is not of this package, the calls are kept in memory.

    Any thread and any event loop may use the store. Close the store after use.

    Raises:
        StoreError: if the URL is invalid, or names a database whose driver is missing; or
            the extra ``stores`` is not installed.
    """
    database, closes = _database_at(where, may_be_foreign=True)
    from anabranch.stores._calls import Calls  # noqa: PLC0415  # see _open_database

    return Calls(database, closes=closes)


def open_tree_store(url: str) -> TreeStore:
    """Open the store of conversations at ``url``; URLs and errors are as in :func:`open_store`."""
    database = _open_database(url)
    from anabranch.stores._trees import Trees  # noqa: PLC0415  # see _open_database

    return Trees(database)


def open_memory_store(url: str | TreeStore) -> MemoryStore:
    """Open the store of notes, at a URL or in the database of a conversation store.

    URLs are those of :func:`open_store`. With a conversation store, the returned store shares its
    connections, until the conversation store is closed.

    Raises:
        StoreError: as for :func:`open_store`, or if the conversation store is not of this package.
    """
    database, closes = _database_at(url)
    from anabranch.stores._memories import Memories  # noqa: PLC0415  # see _open_database

    return Memories(database, closes=closes)


def open_branch_store(url: str | TreeStore) -> BranchStore:
    """Open the store of an agent's branches, at a URL or in the database of a conversation store.

    URLs, shared connections and errors are as in :func:`open_memory_store`.
    """
    database, closes = _database_at(url)
    from anabranch.stores._branches import Branches  # noqa: PLC0415  # see _open_database

    return Branches(database, closes=closes)


def open_stores(url: str) -> tuple[CallStore, TreeStore]:
    """Open the stores of calls and of conversations at ``url``, which share their connections.

    Closing one store closes both. With ``memory:``, only this function opens both stores in one
    database.
    """
    database = _open_database(url)
    from anabranch.stores._calls import Calls  # noqa: PLC0415  # see _open_database
    from anabranch.stores._trees import Trees  # noqa: PLC0415

    return Calls(database), Trees(database)


def is_lasting(store: CallStore) -> bool:
    """Return whether the calls of ``store`` outlive the process; another package's count as lasting."""
    from anabranch.stores._calls import Calls  # noqa: PLC0415  # see _open_database

    return not isinstance(store, Calls) or store.is_lasting


def open_run_events(where: str | TreeStore) -> RunEvents:
    """Return the store of run events at a URL, or in the database of a store of conversations.

    If ``where`` is a store of another package, the events are in memory.
    """
    database, closes = _database_at(where, may_be_foreign=True)
    from anabranch.stores._run_events import Events  # noqa: PLC0415

    return Events(database, closes=closes)


async def append_reported(
    trees: TreeStore,
    events: RunEvents,
    new: NewEvents,
    nodes: Sequence[Node] = (),
    *,
    results: Sequence[Result] = (),
    refs: Sequence[Ref] = (),
    at: float,
) -> None:
    """Add nodes, results and refs to a thread, together with the events that report them.

    One transaction does both if ``events`` were opened over ``trees``. If the owner of ``new`` no
    longer has the lease on the run's turn, the store raises ``StoreError``, and nothing changes. A
    store of another package first adds the nodes, whoever has the lease.
    """
    from anabranch.stores._trees import Trees  # noqa: PLC0415  # see _open_database

    if isinstance(trees, Trees):
        from anabranch.stores._run_events import Events  # noqa: PLC0415

        if isinstance(events, Events) and events.database is trees.database:
            await events.append_with(trees, new, nodes, results=results, refs=refs, at=at)
            return
    await trees.append(nodes, results=results, refs=refs)
    if new.events:
        await events.append_all([new], at=at)


def _database_at(where: str | TreeStore, *, may_be_foreign: bool = False) -> tuple[Database, bool]:
    """Return the database at a URL or of a store, and whether the caller must close it."""
    if isinstance(where, str):
        return _open_database(where), True
    from anabranch.stores._trees import Trees  # noqa: PLC0415  # see _open_database

    if isinstance(where, Trees):
        return where.database, False
    if may_be_foreign:
        return _open_database("memory:"), True
    raise StoreError(f"A {type(where).__name__} has no connections to share. Pass a URL.")


def _open_database(url: str) -> Database:
    # Importing SQLAlchemy takes longer than importing all of anabranch, and many programs need no
    # store.
    with needs_extra("stores", "A store", StoreError):
        from anabranch.stores._database import Database  # noqa: PLC0415
        from anabranch.stores._engines import read_url  # noqa: PLC0415
    return Database(read_url(url))
