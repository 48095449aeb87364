"""The option ``--engine``: what calls workers, in this process or in others."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from anabranch._extras import needs_extra
from anabranch._terminal.exits import UsageError
from anabranch.engines import Engine
from anabranch.errors import StoreError

__all__ = ["ENGINE", "EngineName", "open_engine"]

ENGINE = "ANABRANCH_ENGINE"

EngineName: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--engine",
        env_var=ENGINE,
        help="What shares the work: in-process (the default), dbos (in the --store, a Postgres), or"
        " the postgresql://… in which DBOS has its tables.",
    ),
]


def open_engine(name: str | None, store: str | None) -> Engine | None:
    """Return the engine of this name beside a store, ``None`` for that of this process.

    Raises:
        UsageError: there is no such engine, or it does not work with that store.
    """
    if name in {None, "", "in-process"}:
        return None
    url = store if name == "dbos" else name
    if url is None:
        raise UsageError("DBOS shares a Postgres: give --store postgresql://…")
    if name != "dbos" and "://" not in url:
        raise UsageError(f"There is no engine {name!r}. Give in-process, dbos or postgresql://…")
    try:
        with needs_extra("dbos", "The engine", UsageError):
            from anabranch.engines import DBOSEngine  # noqa: PLC0415 - only where it is used
        return DBOSEngine(url)
    except StoreError as error:
        raise UsageError(str(error)) from error
