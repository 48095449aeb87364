"""The full-text index of memories on SQLite has a range of rows for each scope."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"

_INDEXED = ("title", "description", "content", "task")
_NAMES = ", ".join(_INDEXED)
_ROW = "(number << 32) | {}.seq"
_SQLITE = (
    "DROP TRIGGER IF EXISTS anabranch_memory_added",
    "DROP TRIGGER IF EXISTS anabranch_memory_deleted",
    "DROP TABLE IF EXISTS anabranch_memory_words",
    "DROP TABLE IF EXISTS anabranch_memory_words_place",
    """
    CREATE TABLE anabranch_memory_words_place (number INTEGER PRIMARY KEY, place TEXT NOT NULL UNIQUE)
    """,
    f"""
    CREATE VIRTUAL TABLE anabranch_memory_words USING fts5(
        {_NAMES}, content='', tokenize='porter unicode61')
    """,
    f"""
    CREATE TRIGGER anabranch_memory_added AFTER INSERT ON anabranch_memory BEGIN
        INSERT INTO anabranch_memory_words_place (place) SELECT new.place
        WHERE NOT EXISTS (SELECT 1 FROM anabranch_memory_words_place WHERE place = new.place);
        INSERT INTO anabranch_memory_words (rowid, {_NAMES})
        SELECT {_ROW.format("new")}, {", ".join(f"new.{name}" for name in _INDEXED)}
        FROM anabranch_memory_words_place WHERE place = new.place;
    END
    """,  # noqa: S608 - only names of columns
    f"""
    CREATE TRIGGER anabranch_memory_deleted AFTER DELETE ON anabranch_memory BEGIN
        INSERT INTO anabranch_memory_words (anabranch_memory_words, rowid, {_NAMES})
        SELECT 'delete', {_ROW.format("old")}, {", ".join(f"old.{name}" for name in _INDEXED)}
        FROM anabranch_memory_words_place WHERE place = old.place;
    END
    """,  # noqa: S608 - only names of columns
    """
    INSERT INTO anabranch_memory_words_place (place)
    SELECT DISTINCT place FROM anabranch_memory ORDER BY place
    """,
    f"""
    INSERT INTO anabranch_memory_words (rowid, {_NAMES})
    SELECT {_ROW.format("memory")}, {_NAMES} FROM anabranch_memory AS memory
    JOIN anabranch_memory_words_place USING (place)
    """,  # noqa: S608 - only names of columns
)


def upgrade() -> None:
    """Make the index again."""
    if op.get_bind().dialect.name == "sqlite":
        for statement in _SQLITE:
            op.execute(statement)
