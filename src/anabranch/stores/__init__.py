"""Where calls are kept: SQLite by default, Postgres for many machines. One implementation for both.

Owns the implementations of ports that live with the rooms which need them (``call/store.py``,
``tree/store.py``). Nothing here decides what a record means.

    targets.py      what a URL asks for, and the engine for it
    workers.py      the threads in which a database works, and the way there and back
    kept.py         the connections that SQLite's threads keep
    faults.py       what went wrong, in one sentence
    database.py     transactions and schema: what every table module stands on
    migrations/     how the schema came to be, step by step (Alembic)
    columns.py      what the tables have in common
    direct.py       statements that go to the driver past SQLAlchemy
    call_tables.py  the tables of calls, and the statements over them
    calls.py        calls, behind the port ``CallStore``
    tree_tables.py  the tables of threads, and the statements that write
    tree_queries.py the statements that read threads
    tree_rows.py    what is a node as a row, and a row as a node
    trees.py        threads, behind the port ``TreeStore``

Another kind of record gets a migration, tables and a module of its own beside those of calls.
``memory:`` is SQLite without a file: each room is then written once, and what tests see is what
runs in production.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch._durable.store import CallStore
from anabranch.errors import StoreError
from anabranch.tree._tree_store import TreeStore

if TYPE_CHECKING:
    from anabranch.stores._database import Database

__all__ = ["open_store", "open_stores", "open_tree_store"]


def open_store(url: str) -> CallStore:
    """Return the store of calls at ``url``; it is reached, and its tables made, when first used.

    ==========================  ===============================================================
    ``sqlite:///calls.db``      a file, relative to the working directory (``sqlite:////srv/c.db``
                                is absolute); made if it is missing, readable by its owner alone.
                                Safe with several processes on one machine, not on network drives
    ``postgresql://host/name``  a Postgres database; needs the extra ``postgres``
    ``memory:``                 gone when closed
    ==========================  ===============================================================

    Options follow a ``?``. ``timeout=10``: seconds to wait for a lock, or for the server, before
    giving up. ``synchronous=normal`` (SQLite): faster, but a power cut may take the last records
    along; a crash of the process does not. Postgres understands libpq's options as well.

    Use it from any thread and any event loop, and close it in the end.

    Raises:
        StoreError: the URL cannot be understood, or names a database whose driver is missing;
            or the extra ``stores`` is not installed.
    """
    database = _open_database(url)
    from anabranch.stores._calls import Calls  # noqa: PLC0415  # see _open_database

    return Calls(database)


def open_tree_store(url: str) -> TreeStore:
    """Return the store of conversations at ``url``, as :func:`open_store` does that of calls."""
    database = _open_database(url)
    from anabranch.stores._trees import Trees  # noqa: PLC0415  # see _open_database

    return Trees(database)


def open_stores(url: str) -> tuple[CallStore, TreeStore]:
    """Return both stores at ``url`` over the same connections, for who needs both.

    In ``memory:`` this is the only way to have both in one place. To close one closes both.
    """
    database = _open_database(url)
    from anabranch.stores._calls import Calls  # noqa: PLC0415  # see _open_database
    from anabranch.stores._trees import Trees  # noqa: PLC0415

    return Calls(database), Trees(database)


def _open_database(url: str) -> Database:
    # SQLAlchemy costs more to import than all of anabranch: whoever needs no store does not pay.
    try:
        from anabranch.stores._database import Database  # noqa: PLC0415
        from anabranch.stores._urls import read_url  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise StoreError(f'A store needs {error.name}: install "anabranch[stores]".') from error
    return Database(read_url(url))
