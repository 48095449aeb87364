"""Runs, their events, and the lease on each run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "anabranch_run",
        sa.Column("run", sa.LargeBinary, primary_key=True),
        sa.Column("first", sa.BigInteger, nullable=False),
        sa.Column("last", sa.BigInteger, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("owner", sa.LargeBinary),
        sa.Column("leased_until", sa.Double),
    )
    op.create_table(
        "anabranch_event",
        sa.Column("run", sa.LargeBinary, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", sa.LargeBinary),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    has_key = sa.text("key IS NOT NULL")
    op.create_index(
        "anabranch_event_key",
        "anabranch_event",
        ["run", "key"],
        sqlite_where=has_key,
        postgresql_where=has_key,
    )
