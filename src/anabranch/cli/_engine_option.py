"""The option ``--engine``: what calls workers, in this process or in others."""

from __future__ import annotations

from typing import Annotated, TypeAlias, TypedDict, cast
from urllib.parse import parse_qsl

from cyclopts import Parameter

from anabranch._extras import needs_extra
from anabranch._terminal.exits import UsageError
from anabranch.engines import Engine
from anabranch.errors import StoreError

__all__ = ["ENGINE", "EngineName", "open_engine"]

ENGINE = "ANABRANCH_ENGINE"

RESTATE = "restate+"


class _RestateOptions(TypedDict, total=False):
    """What may follow the ``?`` in the URL of an engine on Restate: parameters of the engine."""

    admin: str
    listen: str
    address: str
    prefix: str


EngineName: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--engine",
        env_var=ENGINE,
        help="What shares the work: in-process (the default); dbos (in the --store, a Postgres), or"
        " the postgresql://… in which DBOS has its tables; or restate+http://HOST:8080, the ingress"
        " of Restate, with ?listen=HOST:9080&address=URL for where it calls a worker.",
    ),
]


def open_engine(name: str | None, store: str | None) -> Engine | None:
    """Return the engine of this name beside a store, ``None`` for that of this process.

    Raises:
        UsageError: there is no such engine, or it does not work with that store.
    """
    if name in {None, "", "in-process"}:
        return None
    try:
        if name is not None and name.startswith(RESTATE):
            return _restate(name.removeprefix(RESTATE))
        return _dbos(name, store)
    except StoreError as error:
        raise UsageError(str(error)) from error


def _dbos(name: str | None, store: str | None) -> Engine:
    url = store if name == "dbos" else name
    if url is None:
        raise UsageError("DBOS shares a Postgres: give --store postgresql://…")
    if name != "dbos" and "://" not in url:
        raise UsageError(
            f"There is no engine {name!r}. Give in-process, dbos, postgresql://… or restate+http://…"
        )
    with needs_extra("dbos", "The engine", UsageError):
        from anabranch.engines import DBOSEngine  # noqa: PLC0415 - only where it is used
    return DBOSEngine(url)


def _restate(url: str) -> Engine:
    ingress, _, query = url.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    for option in options:
        if option not in _RestateOptions.__annotations__:
            known = ", ".join(_RestateOptions.__annotations__)
            raise UsageError(f"An engine on Restate has the options {known}; not {option!r}.")
    with needs_extra("restate", "The engine", UsageError):
        from anabranch.engines import RestateEngine  # noqa: PLC0415 - only where it is used
    return RestateEngine(ingress, **cast("_RestateOptions", options))
