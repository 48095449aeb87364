"""The registry of all tables, and the column type for any text."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator, TypeEngine

metadata: sa.MetaData = sa.MetaData()
"""All tables; each table module adds its own."""


class Opaque(TypeDecorator[str]):
    """Any text at all, stored as bytes.

    Postgres has no text with NUL characters, and neither database takes a lone surrogate.
    """

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = sa.LargeBinary
    cache_ok: bool | None = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> bytes | None:  # noqa: ARG002
        """Return the bytes for a text."""
        return None if value is None else to_bytes(value)

    def process_result_value(self, value: bytes | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        """Return the text again."""
        return None if value is None else to_text(value)


def to_bytes(text: str) -> bytes:
    """Return what :class:`Opaque` stores, for statements that bypass it."""
    return text.encode("utf-8", "surrogatepass")


def to_text(value: bytes) -> str:
    """Return the text again."""
    return value.decode("utf-8", "surrogatepass")
