"""The schema of a store: tables made from one definition, and stamped with its digest.

Each table module adds its tables to ``metadata``, with the triggers and indexes that SQLAlchemy
cannot express. No store is migrated: a store with another stamp is refused.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

import sqlalchemy as sa

from anabranch.errors import StoreError
from anabranch.stores._database_faults import REMEDY
from anabranch.stores._sql import metadata

STAMP = "ed059ee90dfbed0f"
"""The digest of the definition, in both dialects.

The stamp is a constant, so that a process opens a store without loading all tables. Another release of
SQLAlchemy may also render the same definition differently.
"""

_MODULES = ("_branches", "_call_tables", "_event_tables", "_memory_tables", "_tree_tables")
_SCHEMA = sa.Table("anabranch_schema", metadata, sa.Column[str]("stamp", sa.Text, primary_key=True))
_LOCK = 0x616E6162  # any number, the same in every release


@cache
def statements(driver: str) -> tuple[str, ...]:
    """Return the statements that make all tables of a new store.

    Args:
        driver: the name of the dialect and its driver, as in a SQLAlchemy URL.
    """
    for name in _MODULES:
        import_module(f"anabranch.stores.{name}")
    found: list[str] = []

    def add(statement: sa.ClauseElement, *_: object, **__: object) -> None:
        found.append(str(statement.compile(dialect=engine.dialect)).strip())

    engine = sa.create_mock_engine(f"{driver}://", add)
    metadata.create_all(engine, checkfirst=False)
    return tuple(found)


def make_tables(connection: sa.Connection, label: str) -> None:
    """Make the tables of a new store, inside the transaction of ``connection``.

    Processes that open a new store at the same time wait here for each other. On SQLite, the
    transaction already locks the whole file.

    Raises:
        StoreError: if the database has tables of another definition.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    stamps = _stamps(connection)
    if stamps == [STAMP]:
        return
    if stamps:
        raise StoreError(
            f"The store {label} was made by another release: its tables have the stamp"
            f" {', '.join(stamps)!r}, this release makes {STAMP!r}. Use that release, or name another"
            " store; nothing was changed."
        )
    making = statements(connection.engine.url.drivername)
    if not metadata.tables.keys().isdisjoint(sa.inspect(connection).get_table_names()):
        raise StoreError(
            f"The store {label} has tables under the names of this package's, and no stamp of this"
            " release: the stamp was lost, or another release or program made the tables;"
            f" {REMEDY}. Nothing was changed."
        )
    for statement in making:
        connection.exec_driver_sql(statement)
    connection.execute(sa.insert(_SCHEMA).values(stamp=STAMP))


def _stamps(connection: sa.Connection) -> list[str]:
    if not sa.inspect(connection).has_table(_SCHEMA.name):
        return []
    return sorted(map(str, connection.scalars(sa.select(_SCHEMA.c.stamp))))
