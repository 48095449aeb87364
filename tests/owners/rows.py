"""Reads every row of a store, to compare a user's rows before and after other users' work."""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator

import psycopg

RENEWED = ("leased_until", "due")
"""Columns that a running process updates repeatedly."""
SEARCH = re.compile(r"VIRTUAL|_(data|idx|docsize|config|content)\b", re.IGNORECASE)


def rows_of(url: str) -> Counter[str]:
    """Return every row of every table as text, with its count."""
    found = (
        _of_sqlite(url.removeprefix("sqlite:///"))
        if url.startswith("sqlite")
        else _of_postgres(url)
    )
    return Counter(found)


def rows_about(rows: Counter[str], words: Iterable[str]) -> Counter[str]:
    wanted = [*words]
    return Counter({row: n for row, n in rows.items() if any(each in row for each in wanted)})


def _of_sqlite(path: str) -> Iterator[str]:
    connection = sqlite3.connect(path)
    try:
        tables = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'")
        for table, sql in tables.fetchall():
            if not SEARCH.search(f"{sql.partition('(')[0]}"):
                cursor = connection.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - its own names
                yield from _texts(table, [each[0] for each in cursor.description], cursor)
    finally:
        connection.close()


def _of_postgres(url: str) -> Iterator[str]:
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.tables"
            " WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'"
        ).fetchall()
        for (table,) in tables:
            cursor = connection.execute(f'SELECT * FROM "{table}"'.encode())  # noqa: S608
            names = [each.name for each in cursor.description or ()]
            yield from _texts(table, names, cursor)


def _texts(table: str, names: list[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    for row in rows:
        values = dict(zip(names, row, strict=True))
        yield f"{table} " + " ".join(
            f"{name}={_text(value)}" for name, value in values.items() if name not in RENEWED
        )


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)
