"""Migrations of the schema, run by Alembic when a store is first used.

A migration never imports a table module: it describes the tables as they were when it was written.
To change a table, change it in its module, add ``versions/vNNNN_what.py`` and raise :data:`SCHEMA`;
the tests compare the two.
"""

from __future__ import annotations

import threading
from pathlib import Path

import sqlalchemy as sa

from anabranch.errors import StoreError

__all__ = ["SCHEMA", "VERSION_TABLE", "current", "migrate"]

SCHEMA = "0012"
"""The newest migration."""

VERSION_TABLE = "anabranch_version"

_ALEMBIC_LOCK = threading.Lock()
"""Alembic has the current migration in a global, and a process may open several stores."""


def current(connection: sa.Connection) -> str | None:
    """Return the version of the schema that is there, ``None`` for a new database."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    table = sa.table(VERSION_TABLE, sa.column("version_num", sa.String))
    return connection.scalar(sa.select(table.c.version_num))


def migrate(connection: sa.Connection, label: str) -> None:
    """Bring the schema up to date, inside the transaction that ``connection`` is in.

    Raises:
        StoreError: it is of a version that this release does not know.
    """
    # Needed once in the life of a store, and slow to import.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        with _ALEMBIC_LOCK:
            command.upgrade(config, "head")
    except CommandError as error:
        raise StoreError(
            f"The store {label} was written by another release: its schema has version"
            f" {current(connection)!r}, this release knows versions up to {SCHEMA!r}."
            " Use the newer release, or name another store; nothing was changed."
        ) from error
