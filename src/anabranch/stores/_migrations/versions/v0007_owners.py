"""A thread has an owner."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the column; threads that are there have no owner."""
    op.add_column("anabranch_thread", sa.Column("owner", sa.LargeBinary))
    op.create_index("anabranch_thread_owner", "anabranch_thread", ["owner", "created_at", "seq"])
