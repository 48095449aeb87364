"""Memories, their full-text index, their vectors, and the queue of branches to learn from."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"

_INDEXED = "place, title, description, content, task"
_SQLITE = (
    f"""
    CREATE VIRTUAL TABLE anabranch_memory_words USING fts5(
        {_INDEXED}, content='anabranch_memory', content_rowid='seq', tokenize='porter unicode61')
    """,
    f"""
    CREATE TRIGGER anabranch_memory_added AFTER INSERT ON anabranch_memory BEGIN
        INSERT INTO anabranch_memory_words (rowid, {_INDEXED})
        VALUES (new.seq, new.place, new.title, new.description, new.content, new.task);
    END
    """,  # noqa: S608 - only names of columns
    f"""
    CREATE TRIGGER anabranch_memory_deleted AFTER DELETE ON anabranch_memory BEGIN
        INSERT INTO anabranch_memory_words (anabranch_memory_words, rowid, {_INDEXED})
        VALUES ('delete', old.seq, old.place, old.title, old.description, old.content, old.task);
    END
    """,  # noqa: S608 - only names of columns
)
_POSTGRES = (
    """
    ALTER TABLE anabranch_memory ADD COLUMN words tsvector GENERATED ALWAYS AS (
        setweight(to_tsvector('english', title), 'A')
        || setweight(to_tsvector('english', description), 'B')
        || setweight(to_tsvector('english', content || ' ' || task), 'C')
    ) STORED
    """,
    "CREATE INDEX anabranch_memory_words ON anabranch_memory USING gin (words)",
)


def upgrade() -> None:
    """Create the tables."""
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "anabranch_memory",
        sa.Column("seq", number, sa.Identity(), primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("confidence", sa.Double, nullable=False),
        sa.Column("prior", sa.Double, nullable=False),
        sa.Column("helpful", sa.Integer, nullable=False),
        sa.Column("unhelpful", sa.Integer, nullable=False),
        sa.Column("provenance", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.UniqueConstraint("place", "digest"),
    )
    op.create_index("anabranch_memory_newest", "anabranch_memory", ["place", "seq"])
    op.create_table(
        "anabranch_memory_vector",
        sa.Column("memory", sa.BigInteger, _of_memory(), primary_key=True, autoincrement=False),
        sa.Column("embedder", sa.Text, primary_key=True),
        sa.Column(
            "vector",
            sa.LargeBinary().with_variant(postgresql.ARRAY(sa.REAL), "postgresql"),
            nullable=False,
        ),
    )
    is_due = sa.text("branch <> ''")
    op.create_table(
        "anabranch_memory_queue",
        sa.Column("branch_id", sa.Text, primary_key=True),
        sa.Column("branch", sa.Text, nullable=False),
        sa.Column("queued_at", sa.Double, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("problem", sa.Text),
        sa.Index("anabranch_memory_due", "due_at", sqlite_where=is_due, postgresql_where=is_due),
    )
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    for statement in _SQLITE if is_sqlite else _POSTGRES:
        op.execute(statement)


def _of_memory() -> sa.ForeignKey:
    return sa.ForeignKey("anabranch_memory.seq", ondelete="CASCADE")
