"""Branches of context folding, their sessions, and the number of open ones."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "anabranch_folding_session",
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("touched_at", sa.Double, nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
    )
    op.create_index(
        "anabranch_folding_session_touched", "anabranch_folding_session", ["touched_at"]
    )
    op.create_table(
        "anabranch_branch",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            sa.Identity(),
            primary_key=True,
        ),
        sa.Column("id", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("session", sa.LargeBinary, nullable=False),
        sa.Column("parent", sa.LargeBinary),
        sa.Column("deadline", sa.Double),
        sa.Column("completed_at", sa.Double),
        sa.Column("record", sa.LargeBinary, nullable=False),
    )
    is_open, is_closed = sa.text("deadline IS NOT NULL"), sa.text("completed_at IS NOT NULL")
    op.create_index("anabranch_branch_session", "anabranch_branch", ["session", "seq"])
    for name, columns, condition in (
        ("open", ["session", "seq"], is_open),
        ("parent", ["parent", "seq"], is_open),
        ("deadline", ["deadline"], is_open),
        ("closed", ["completed_at"], is_closed),
    ):
        op.create_index(
            f"anabranch_branch_{name}",
            "anabranch_branch",
            columns,
            sqlite_where=condition,
            postgresql_where=condition,
        )
    op.create_table(
        "anabranch_branch_count",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("open", sa.Integer, nullable=False),
    )
    op.execute("INSERT INTO anabranch_branch_count (id, open) VALUES (1, 0)")
