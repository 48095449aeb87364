"""Alembic's entry point: runs the migrations on the connection, and in the transaction, it is given.

Not imported by anabranch; Alembic executes it.
"""

from __future__ import annotations

from alembic import context

context.configure(
    connection=context.config.attributes["connection"], version_table="anabranch_version"
)
context.run_migrations()
