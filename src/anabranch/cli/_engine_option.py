"""The option ``--engine``: opens the engine that wakes workers, in this process or in others."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

from anabranch._terminal import UsageError
from anabranch.engines import Engine
from anabranch.errors import StoreError, needs_extra

DBOS = "dbos"


def open_engine(name: str | None, store: str | None) -> Engine | None:
    """Return the engine of this name for a store; ``None`` for the engine of this process.

    Raises:
        UsageError: if there is no such engine, or the engine does not work with that store.
    """
    if name is None or name in {"", "in-process"}:
        return None
    try:
        return _dbos(name, store)
    except StoreError as error:
        raise UsageError(str(error)) from error


def _dbos(name: str, store: str | None) -> Engine:
    place, options, schema = _schema_of(name)
    if place != DBOS and "://" not in place:
        raise UsageError(f"There is no engine {name!r}. Give in-process, dbos or postgresql://…")
    if place == DBOS and options:
        raise UsageError(f"An engine in the --store has the option schema; not {options!r}.")
    url = f"{place}?{options}" if options else place
    if place == DBOS:
        if store is None:
            raise UsageError("DBOS shares a Postgres: give --store postgresql://…")
        url = store
    with needs_extra("dbos", "The engine", UsageError):
        from anabranch.engines import DBOSEngine
    return DBOSEngine(url, schema=schema)


def _schema_of(name: str) -> tuple[str, str, str]:
    """Return an engine's name without query, the query without the schema, and the schema.

    Raises:
        UsageError: if the schema's name is invalid.
    """
    place, _, query = name.partition("?")
    given = parse_qsl(query, keep_blank_values=True)
    schema = dict(given).get("schema", DBOS)
    if re.fullmatch("[a-z_][a-z0-9_]{0,62}", schema) is None:
        raise UsageError(
            f"A schema has up to 63 lower-case letters, digits and underscores, not {schema!r}."
        )
    others = "&".join(each for each in query.split("&") if not each.startswith("schema="))
    return place, others, schema
