"""Notes beside each round, and calls in the order in which they began."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column and the index."""
    op.add_column("anabranch_round", sa.Column("notes", sa.LargeBinary))
    op.create_index("anabranch_call_started", "anabranch_call", ["started", "call_id"])
