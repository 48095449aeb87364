"""Turns errors of database drivers into ``StoreError``: one sentence, without callers' data."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy import exc

from anabranch.errors import StoreError

REMEDY = "restore it from a copy, or name another store"
_MISFIT = (
    "has tables that do not fit its stamp: a program has changed or made them, or a restore was"
    f" incomplete; {REMEDY}"
)
_DELETED = "no longer has the record that this write belongs to; read the store again"
_SQLITE = {
    "SQLITE_ERROR": _MISFIT,  # a statement names a table or a column that is missing
    "SQLITE_CONSTRAINT": _MISFIT,
    "SQLITE_CONSTRAINT_FOREIGNKEY": _DELETED,
    "SQLITE_MISMATCH": _MISFIT,
    "SQLITE_BUSY": "is locked by another program; end that program, or raise ?timeout=",
    "SQLITE_LOCKED": "is locked by another program; end that program, or raise ?timeout=",
    "SQLITE_NOTADB": "is not a SQLite database, and is unchanged; name another file",
    "SQLITE_CORRUPT": "is damaged, and is unchanged; restore it from a copy, or name another file",
    "SQLITE_CANTOPEN": "cannot be opened; name a file in a directory that can be written to",
    "SQLITE_READONLY": "cannot be written to; check the permissions of the file and its directory",
    "SQLITE_FULL": "has no space left on its disk; free some space",
    "SQLITE_IOERR": "cannot be read or written by the system; check its disk",
}
_POSTGRES = {
    "55P03": "is locked by another program; end that program, or raise ?timeout=",
    "40P01": "gave up on a deadlock; try again",
    "42501": "does not let this user make or use its tables; grant the rights",
    "3F000": "has no schema that this user may use; grant the rights, or set search_path",
    "23503": _DELETED,
    "57014": "cancelled a statement after a minute; try again when the server is less busy",
    "25006": "cannot be written to; name the primary server",
}
_POSTGRES_CLASSES = {
    "23": _MISFIT,
    "42": _MISFIT,
    "08": "broke the connection; try again",
    "53": "has run out of connections, memory or disk; make room",
    "57": "is shutting down; try again",
}


@contextmanager
def translated(label: str, what: str = "store") -> Generator[None]:
    """Raise :class:`StoreError`, which names the store ``label``, in place of the driver's errors."""
    named = f"The {what} {label}"
    try:
        yield
    except exc.DBAPIError as error:
        raise _sentence(named, error.orig or error) from error
    except exc.SQLAlchemyError as error:
        raise StoreError(f"{named} failed: {type(error).__name__}.") from error
    except Exception as error:
        # While a connection is set up, the driver's errors arrive bare.
        if type(error).__module__.partition(".")[0] not in {"sqlite3", "psycopg"}:
            raise
        raise _sentence(named, error) from error


def _sentence(named: str, error: BaseException) -> StoreError:
    if (reason := _reason(error)) is None:  # no server has answered with a number
        said = " ".join(str(error).split()) or type(error).__name__
        reason = f"cannot be reached: {said.rstrip('.')}"
    return StoreError(f"{named} {reason}.")


def _reason(error: BaseException) -> str | None:
    """Return the meaning of the error number that the database gave; ``None`` without a number."""
    name = getattr(error, "sqlite_errorname", None)
    if name is not None:  # extended codes begin with the plain one: SQLITE_IOERR_WRITE
        plain = "_".join(name.split("_")[:2])
        return _SQLITE.get(name) or _SQLITE.get(plain, f"failed with {name}")
    state = getattr(error, "sqlstate", None)
    if state is None:
        return None
    return _POSTGRES.get(state) or _POSTGRES_CLASSES.get(state[:2], f"failed with error {state}")
