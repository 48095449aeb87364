"""An index by which runs are found whose process has died."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the index."""
    has_owner = sa.text("owner IS NOT NULL")
    op.create_index(
        "anabranch_run_leased",
        "anabranch_run",
        ["leased_until"],
        sqlite_where=has_owner,
        postgresql_where=has_owner,
    )
