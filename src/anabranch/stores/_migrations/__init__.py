"""Migrations of the schema, run by Alembic when a store is first used.

A migration never imports a table module: it describes the tables as they were when it was written.
To change a table, change it in its module, add ``versions/vNNNN_what.py`` and raise :data:`SCHEMA`;
the tests compare the two.
"""

from __future__ import annotations

import threading
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import exc

from anabranch.errors import StoreError
from anabranch.stores._database_faults import REMEDY, is_misfit

__all__ = ["SCHEMA", "VERSION_TABLE", "current", "migrate"]

SCHEMA = "0001"
"""The newest migration."""

_KNOWN = {f"{number:04}" for number in range(1, int(SCHEMA) + 1)}

VERSION_TABLE = "anabranch_version"

_ALEMBIC_LOCK = threading.Lock()
"""Alembic has the current migration in a global, and a process may open several stores."""


def current(connection: sa.Connection) -> str | None:
    """Return the version of the schema that is there, ``None`` for a new database.

    If there are several, which no release writes, they are returned as one that is unknown.
    """
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    table = sa.table(VERSION_TABLE, sa.column("version_num", sa.String))
    versions = sorted(map(str, connection.scalars(sa.select(table.c.version_num))))
    return ", ".join(versions) if versions else None


def migrate(connection: sa.Connection, label: str) -> None:
    """Bring the schema up to date, inside the transaction that ``connection`` is in.

    Raises:
        StoreError: it is of a version that this release does not know, or has other tables.
    """
    # Needed once in the life of a store, and slow to import.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    version = current(connection)
    if version is not None and version not in _KNOWN:
        raise StoreError(
            f"The store {label} was written by another release: its schema has version {version!r},"
            f" this release knows versions up to {SCHEMA!r}. Use the newer release, or name another"
            " store; nothing was changed."
        )
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        with _ALEMBIC_LOCK:
            command.upgrade(config, "head")
    except exc.SQLAlchemyError as error:
        if not is_misfit(error):
            raise
        found = "no version" if version is None else f"version {version!r}"
        raise StoreError(
            f"The store {label} says {found} of its schema, and has tables that do not fit: its version"
            f" was changed or lost, or they are another program's; {REMEDY}. Nothing was changed."
        ) from error
