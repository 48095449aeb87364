"""The status of a call whose deadline has passed is ``expired``; it was ``abandoned``."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Rename the status."""
    op.execute("UPDATE anabranch_call SET status = 'expired' WHERE status = 'abandoned'")
