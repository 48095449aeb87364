"""Calls, how their rounds ended, and the steps recorded in them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "anabranch_call",
        sa.Column("call_id", sa.LargeBinary, primary_key=True),
        sa.Column("tool", sa.LargeBinary, nullable=False),
        sa.Column("arguments", sa.LargeBinary, nullable=False),
        sa.Column("started", sa.Double, nullable=False),
        sa.Column("deadline", sa.Double, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("principal", sa.LargeBinary, nullable=False),
        sa.Column("owner", sa.LargeBinary),
        sa.Column("leased_until", sa.Double),
    )
    is_open, is_over = sa.text("status = 'open'"), sa.text("status <> 'open'")
    for name, condition in (("open", is_open), ("over", is_over)):
        op.create_index(
            f"anabranch_call_{name}",
            "anabranch_call",
            ["deadline"],
            sqlite_where=condition,
            postgresql_where=condition,
        )
    op.create_table(
        "anabranch_round",
        sa.Column("call_id", sa.LargeBinary, _of_call(), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("answers", sa.LargeBinary, nullable=False),
        sa.Column("reply", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "anabranch_entry",
        sa.Column(
            "id",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            sa.Identity(),
            primary_key=True,
        ),
        sa.Column("call_id", sa.LargeBinary, _of_call(), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("step_id", sa.LargeBinary, nullable=False),
        sa.Column("text", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("call_id", "step_id"),
    )
    op.create_index("anabranch_entry_round", "anabranch_entry", ["call_id", "number", "id"])


def _of_call() -> sa.ForeignKey:
    return sa.ForeignKey("anabranch_call.call_id", ondelete="CASCADE")
