"""Threads, their nodes, the results of tools beside the nodes, and refs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "anabranch_thread",
        _seq(),
        sa.Column("id", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("system_prompt", sa.LargeBinary),
        sa.Column("title", sa.LargeBinary, nullable=False),
    )
    op.create_index("anabranch_thread_latest", "anabranch_thread", ["created_at", "seq"])
    op.create_table(
        "anabranch_node",
        _seq(),
        sa.Column("id", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("thread", sa.BigInteger, _of_thread(), nullable=False),
        sa.Column("parent", sa.BigInteger, sa.ForeignKey("anabranch_node.seq")),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("usage", sa.LargeBinary),
        sa.Column("data", sa.LargeBinary),
    )
    op.create_index("anabranch_node_thread", "anabranch_node", ["thread", "seq"])
    op.create_index("anabranch_node_parent", "anabranch_node", ["parent", "seq"])
    op.create_table(
        "anabranch_result",
        sa.Column("node", sa.BigInteger, _of_node(), primary_key=True, autoincrement=False),
        sa.Column("tool_use_id", sa.LargeBinary, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("is_error", sa.Boolean, nullable=False),
        sa.Column("pending", sa.LargeBinary),
    )
    op.create_table(
        "anabranch_ref",
        sa.Column("thread", sa.BigInteger, _of_thread(), primary_key=True, autoincrement=False),
        sa.Column("name", sa.LargeBinary, primary_key=True),
        sa.Column("node", sa.BigInteger, _of_node(), nullable=False),
    )
    op.create_index("anabranch_ref_node", "anabranch_ref", ["node"])


def _seq() -> sa.Column[int]:
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Column("seq", number, sa.Identity(), primary_key=True)


def _of_thread() -> sa.ForeignKey:
    return sa.ForeignKey("anabranch_thread.seq", ondelete="CASCADE")


def _of_node() -> sa.ForeignKey:
    return sa.ForeignKey("anabranch_node.seq", ondelete="CASCADE")
