"""The address of a store: the forms of store URLs, and their options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import exc

from anabranch.errors import StoreError, needs_extra

Kind = Literal["memory", "sqlite", "postgresql"]

_FORMS = "sqlite:///path, postgresql://user@host/name or memory:"
_SCHEMES: Mapping[str, Kind] = {
    "sqlite": "sqlite",
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "postgresql+psycopg": "postgresql",
}
_CUT_OFF = {
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""libpq options that break a connection after half a minute without a sign of the server.

A cut network sends no sign: without these options, a process would wait for a quarter of an hour.
"""


@dataclass(frozen=True, slots=True)
class Target:
    """A store's address, parsed.

    Attributes:
        kind: the kind of database.
        url: the URL for SQLAlchemy.
        label: the URL without password and options, for messages.
        timeout: seconds to wait for a lock, or for the server.
        synchronous: SQLite's durability: ``full`` or ``normal``.
    """

    kind: Kind
    url: sa.URL
    label: str
    timeout: float = 10.0
    synchronous: str = "full"


def read_url(text: str) -> Target:
    """Parse a store URL.

    Raises:
        StoreError: if the URL is invalid, or its driver is not installed.
    """
    if text == "memory:":
        return Target("memory", sa.make_url("sqlite://"), text)
    try:
        url = sa.make_url(text)
    except (exc.ArgumentError, ValueError):
        # The text is not repeated: a mistyped URL may hold a password.
        raise StoreError(f"The store URL is invalid; use {_FORMS}.") from None
    kind = _SCHEMES.get(url.drivername)
    if kind is None:
        raise StoreError(f"There is no store for {url.drivername!r} URLs; use {_FORMS}.")
    label = url.set(query={}).render_as_string(hide_password=True)
    options = dict(url.query)
    timeout = _seconds(options.pop("timeout", "10"))
    if kind == "sqlite":
        return _read_sqlite(url, label, timeout, options)
    _require_psycopg()
    options.setdefault("connect_timeout", str(max(2, math.ceil(timeout))))  # libpq's least is 2
    options.setdefault("application_name", "anabranch")
    for option, value in _CUT_OFF.items():
        options.setdefault(option, value)
    url = url.set(drivername="postgresql+psycopg", query=options)
    return Target(kind, url, label, timeout)


def _read_sqlite(url: sa.URL, label: str, timeout: float, options: dict[str, Any]) -> Target:
    synchronous = str(options.pop("synchronous", "full")).lower()
    if synchronous not in {"full", "normal"}:
        raise StoreError(f"synchronous={synchronous} in {label} is neither full nor normal.")
    if options:
        raise StoreError(f"{label} has no option {min(options)!r}; it has timeout and synchronous.")
    if url.host is not None or url.database in {None, "", ":memory:"}:
        raise StoreError(
            f"{label} names no file: write three slashes before the path"
            " (four if it is absolute), or memory: for a store without a file."
        )
    path = Path(str(url.database)).expanduser()
    return Target("sqlite", url.set(database=str(path), query={}), label, timeout, synchronous)


def _seconds(text: str | tuple[str, ...]) -> float:
    try:
        seconds = float(str(text))  # an option that is given twice is a tuple
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise StoreError(f"timeout={text} in the store URL is not a number of seconds.")
    return seconds


def _require_psycopg() -> None:
    with needs_extra("postgres", "A postgresql:// store", StoreError):
        import_module("psycopg")
