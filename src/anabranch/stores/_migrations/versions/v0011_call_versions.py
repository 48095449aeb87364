"""The version of the code that a call was begun under."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the column."""
    op.add_column("anabranch_call", sa.Column("version", sa.LargeBinary))
