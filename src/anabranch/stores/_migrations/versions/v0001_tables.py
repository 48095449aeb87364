"""All tables, as the first release has them, and the full-text index of memories."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None

_INDEXED = ("title_words", "description_words", "content_words")
_NAMES = ", ".join(_INDEXED)
_ROW = "(number << 32) | {}.seq"
_SQLITE = (
    """
    CREATE TABLE anabranch_memory_words_place (number INTEGER PRIMARY KEY, place TEXT NOT NULL UNIQUE)
    """,
    f"""
    CREATE VIRTUAL TABLE anabranch_memory_words USING fts5(
        {_NAMES}, content='', tokenize='porter ascii')
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
)
_POSTGRES = (
    """
    ALTER TABLE anabranch_memory ADD COLUMN words tsvector GENERATED ALWAYS AS (
        setweight(to_tsvector('english', title_words), 'A')
        || setweight(to_tsvector('english', description_words), 'B')
        || setweight(to_tsvector('english', content_words), 'C')
    ) STORED
    """,
    "CREATE INDEX anabranch_memory_words ON anabranch_memory USING gin (words)",
)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "anabranch_branch",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.Identity(always=False),
            nullable=False,
        ),
        sa.Column("id", sa.LargeBinary(), nullable=False),
        sa.Column("session", sa.LargeBinary(), nullable=False),
        sa.Column("parent", sa.LargeBinary(), nullable=True),
        sa.Column("deadline", sa.Double, nullable=True),
        sa.Column("completed_at", sa.Double, nullable=True),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
    )
    op.create_index(
        "anabranch_branch_closed",
        "anabranch_branch",
        ["completed_at"],
        unique=False,
        sqlite_where=sa.text("completed_at IS NOT NULL"),
        postgresql_where=sa.text("completed_at IS NOT NULL"),
    )
    op.create_index(
        "anabranch_branch_deadline",
        "anabranch_branch",
        ["deadline"],
        unique=False,
        sqlite_where=sa.text("deadline IS NOT NULL"),
        postgresql_where=sa.text("deadline IS NOT NULL"),
    )
    op.create_index(
        "anabranch_branch_open",
        "anabranch_branch",
        ["session", "seq"],
        unique=False,
        sqlite_where=sa.text("deadline IS NOT NULL"),
        postgresql_where=sa.text("deadline IS NOT NULL"),
    )
    op.create_index(
        "anabranch_branch_parent",
        "anabranch_branch",
        ["parent", "seq"],
        unique=False,
        sqlite_where=sa.text("deadline IS NOT NULL"),
        postgresql_where=sa.text("deadline IS NOT NULL"),
    )
    op.create_index(
        "anabranch_branch_session", "anabranch_branch", ["session", "seq"], unique=False
    )
    op.create_table(
        "anabranch_branch_count",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("open", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.execute("INSERT INTO anabranch_branch_count (id, open) VALUES (1, 0)")
    op.create_table(
        "anabranch_call",
        sa.Column("call_id", sa.LargeBinary(), nullable=False),
        sa.Column("tool", sa.LargeBinary(), nullable=False),
        sa.Column("arguments", sa.LargeBinary(), nullable=False),
        sa.Column("started", sa.Double, nullable=False),
        sa.Column("deadline", sa.Double, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("principal", sa.LargeBinary(), nullable=False),
        sa.Column("version", sa.LargeBinary(), nullable=False),
        sa.Column("failure", sa.LargeBinary(), nullable=True),
        sa.Column("stopped", sa.Boolean(), nullable=False),
        sa.Column("asked", sa.Double, nullable=True),
        sa.Column("owner", sa.LargeBinary(), nullable=True),
        sa.Column("leased_until", sa.Double, nullable=True),
        sa.Column("opened", sa.Integer),
        sa.Column("given", sa.LargeBinary),
        sa.CheckConstraint(
            "state IN ('done', 'expired', 'failed', 'ready', 'running', 'stopped', 'undoing', 'waiting')",
            name="anabranch_call_state",
        ),
        sa.PrimaryKeyConstraint("call_id"),
    )
    op.create_index(
        "anabranch_call_asked",
        "anabranch_call",
        ["asked"],
        unique=False,
        sqlite_where=sa.text("state = 'waiting' AND asked IS NOT NULL"),
        postgresql_where=sa.text("state = 'waiting' AND asked IS NOT NULL"),
    )
    op.create_index(
        "anabranch_call_open",
        "anabranch_call",
        ["deadline"],
        unique=False,
        sqlite_where=sa.text("state IN ('ready', 'running', 'undoing', 'waiting')"),
        postgresql_where=sa.text("state IN ('ready', 'running', 'undoing', 'waiting')"),
    )
    op.create_index(
        "anabranch_call_over",
        "anabranch_call",
        ["deadline"],
        unique=False,
        sqlite_where=sa.text("state NOT IN ('ready', 'running', 'undoing', 'waiting')"),
        postgresql_where=sa.text("state NOT IN ('ready', 'running', 'undoing', 'waiting')"),
    )
    op.create_index(
        "anabranch_call_started", "anabranch_call", ["started", "call_id"], unique=False
    )
    op.create_table(
        "anabranch_event",
        sa.Column("run", sa.LargeBinary(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("key", sa.LargeBinary(), nullable=True),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("mark", sa.BigInteger, server_default="1", nullable=False),
        sa.PrimaryKeyConstraint("run", "number"),
    )
    op.create_index(
        "anabranch_event_key",
        "anabranch_event",
        ["run", "key"],
        unique=False,
        sqlite_where=sa.text("key IS NOT NULL"),
        postgresql_where=sa.text("key IS NOT NULL"),
    )
    op.create_table(
        "anabranch_folding_session",
        sa.Column("id", sa.LargeBinary(), nullable=False),
        sa.Column("touched_at", sa.Double, nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "anabranch_folding_session_touched",
        "anabranch_folding_session",
        ["touched_at"],
        unique=False,
    )
    op.create_table(
        "anabranch_memory",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.Identity(always=False),
            nullable=False,
        ),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("confidence", sa.Double, nullable=False),
        sa.Column("prior", sa.Double, nullable=False),
        sa.Column("helpful", sa.Integer(), nullable=False),
        sa.Column("unhelpful", sa.Integer(), nullable=False),
        sa.Column("provenance", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("title_words", sa.Text(), nullable=False),
        sa.Column("description_words", sa.Text(), nullable=False),
        sa.Column("content_words", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
        sa.UniqueConstraint("place", "digest"),
    )
    op.create_index("anabranch_memory_newest", "anabranch_memory", ["place", "seq"], unique=False)
    op.create_table(
        "anabranch_memory_queue",
        sa.Column("branch_id", sa.Text(), nullable=False),
        sa.Column("branch", sa.Text(), nullable=False),
        sa.Column("queued_at", sa.Double, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Double, nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("branch_id"),
    )
    op.create_index(
        "anabranch_memory_due",
        "anabranch_memory_queue",
        ["due_at"],
        unique=False,
        sqlite_where=sa.text("branch <> ''"),
        postgresql_where=sa.text("branch <> ''"),
    )
    op.create_table(
        "anabranch_run",
        sa.Column("run", sa.LargeBinary(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("owner", sa.LargeBinary(), nullable=True),
        sa.Column("leased_until", sa.Double, nullable=True),
        sa.Column("mark", sa.BigInteger, server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("run"),
    )
    op.create_index(
        "anabranch_run_leased",
        "anabranch_run",
        ["leased_until"],
        unique=False,
        sqlite_where=sa.text("owner IS NOT NULL"),
        postgresql_where=sa.text("owner IS NOT NULL"),
    )
    op.create_table(
        "anabranch_thread",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.Identity(always=False),
            nullable=False,
        ),
        sa.Column("id", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("system_prompt", sa.LargeBinary(), nullable=True),
        sa.Column("title", sa.LargeBinary(), nullable=False),
        sa.Column("owner", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
    )
    op.create_index(
        "anabranch_thread_latest", "anabranch_thread", ["created_at", "seq"], unique=False
    )
    op.create_index(
        "anabranch_thread_owner", "anabranch_thread", ["owner", "created_at", "seq"], unique=False
    )
    op.create_table(
        "anabranch_answer",
        sa.Column("call_id", sa.LargeBinary(), nullable=False),
        sa.Column("step_id", sa.LargeBinary(), nullable=False),
        sa.Column("text", sa.LargeBinary(), nullable=False),
        sa.Column("by", sa.LargeBinary(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["call_id"], ["anabranch_call.call_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("call_id", "step_id"),
    )
    op.create_table(
        "anabranch_entry",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.Identity(always=False),
            nullable=False,
        ),
        sa.Column("call_id", sa.LargeBinary(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("step_id", sa.LargeBinary(), nullable=False),
        sa.Column("text", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["call_id"], ["anabranch_call.call_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("call_id", "step_id"),
    )
    op.create_index(
        "anabranch_entry_round", "anabranch_entry", ["call_id", "number", "id"], unique=False
    )
    op.create_table(
        "anabranch_memory_vector",
        sa.Column("memory", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("embedder", sa.Text(), nullable=False),
        sa.Column(
            "vector",
            sa.LargeBinary().with_variant(postgresql.ARRAY(sa.REAL), "postgresql"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(["memory"], ["anabranch_memory.seq"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("memory", "embedder"),
    )
    op.create_table(
        "anabranch_memory_vote",
        sa.Column("memory", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("voter", sa.Text(), nullable=False),
        sa.Column("helpful", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["memory"], ["anabranch_memory.seq"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("memory", "voter"),
    )
    op.create_table(
        "anabranch_node",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            sa.Identity(always=False),
            nullable=False,
        ),
        sa.Column("id", sa.LargeBinary(), nullable=False),
        sa.Column("thread", sa.BigInteger(), nullable=False),
        sa.Column("parent", sa.BigInteger(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("usage", sa.LargeBinary(), nullable=True),
        sa.Column("data", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["parent"],
            ["anabranch_node.seq"],
        ),
        sa.ForeignKeyConstraint(["thread"], ["anabranch_thread.seq"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("anabranch_node_parent", "anabranch_node", ["parent", "seq"], unique=False)
    op.create_index("anabranch_node_thread", "anabranch_node", ["thread", "seq"], unique=False)
    op.create_table(
        "anabranch_round",
        sa.Column("call_id", sa.LargeBinary(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("reply", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("notes", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["call_id"], ["anabranch_call.call_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("call_id", "number"),
    )
    op.create_table(
        "anabranch_undone",
        sa.Column("call_id", sa.LargeBinary(), nullable=False),
        sa.Column("step_id", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["call_id"], ["anabranch_call.call_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("call_id", "step_id"),
    )
    op.create_table(
        "anabranch_ref",
        sa.Column("thread", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("name", sa.LargeBinary(), nullable=False),
        sa.Column("node", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["anabranch_node.seq"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["thread"], ["anabranch_thread.seq"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("thread", "name"),
    )
    op.create_index("anabranch_ref_node", "anabranch_ref", ["node"], unique=False)
    op.create_table(
        "anabranch_result",
        sa.Column("node", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("tool_use_id", sa.LargeBinary(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("is_error", sa.Boolean(), nullable=False),
        sa.Column("pending", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["node"], ["anabranch_node.seq"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("node", "tool_use_id"),
    )
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    for statement in _SQLITE if is_sqlite else _POSTGRES:
        op.execute(statement)
