"""Since when an open call waits for a person."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the column, and the index that has the longest waiting call first."""
    asks = sa.text("status = 'open' AND asked IS NOT NULL")
    op.add_column("anabranch_call", sa.Column("asked", sa.Double()))
    op.create_index(
        "anabranch_call_asked",
        "anabranch_call",
        ["asked"],
        sqlite_where=asks,
        postgresql_where=asks,
    )
