"""The registry of all tables, and the column type for any text."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator, TypeEngine

metadata: sa.MetaData = sa.MetaData()
"""The registry of all tables; each table module adds its tables."""


class Opaque(TypeDecorator[str]):
    """Any text, stored as bytes.

    A text column of Postgres takes no NUL character, and neither database takes a lone surrogate.
    """

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = sa.LargeBinary
    cache_ok: bool | None = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> bytes | None:  # noqa: ARG002
        """Return the bytes of a text."""
        return None if value is None else to_bytes(value)

    def process_result_value(self, value: bytes | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        """Return the text of the bytes."""
        return None if value is None else to_text(value)


def to_bytes(text: str) -> bytes:
    """Return ``text`` as :class:`Opaque` stores it, for statements that bypass the type."""
    return text.encode("utf-8", "surrogatepass")


def to_text(value: bytes) -> str:
    """Return the text of a value that :class:`Opaque` stored."""
    return value.decode("utf-8", "surrogatepass")
