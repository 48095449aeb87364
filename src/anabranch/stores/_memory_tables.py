"""The tables of memories, their full-text index, and memories as rows.

The columns of words have the terms of :func:`~anabranch.memory.indexed`, so that both databases
match the same terms. On SQLite, the upper half of an index row's number is the number of the
scope's place, the lower half is the memory's ``seq``. So a search reads the rows of its scopes
alone, and other users' memories do not slow it down.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.dialects import postgresql

from anabranch.memory import Filter, Memory, Provenance, Scope, indexed
from anabranch.messages import unchecked
from anabranch.stores._sql import metadata, numbered, partial_index

_WORDS = ("title_words", "description_words", "content_words")


def _texts(*names: str) -> Iterator[sa.Column[str]]:
    return (sa.Column[str](name, sa.Text, nullable=False) for name in names)


MEMORY = sa.Table(
    "anabranch_memory",
    metadata,
    numbered("seq"),
    sa.Column[str]("id", sa.Text, nullable=False, unique=True),
    *_texts("place", "digest", "level", "owner", "title", "description", "content", "task"),
    sa.Column[float]("confidence", sa.Double(), nullable=False),
    sa.Column[float]("prior", sa.Double(), nullable=False),
    sa.Column[int]("helpful", sa.Integer, nullable=False),
    sa.Column[int]("unhelpful", sa.Integer, nullable=False),
    sa.Column[str]("provenance", sa.Text, nullable=False),
    sa.Column[float]("created_at", sa.Double(), nullable=False),
    *_texts(*_WORDS),
    sa.UniqueConstraint("place", "digest"),
    sa.Index("anabranch_memory_newest", "place", "seq"),
)
_NAMES = ", ".join(_WORDS)
_ROW = "(number << 32) | {}.seq"
_INDEX = {
    "sqlite": (
        """
        CREATE TABLE anabranch_memory_words_place (
            number INTEGER PRIMARY KEY, place TEXT NOT NULL UNIQUE)
        """,
        f"""
        CREATE VIRTUAL TABLE anabranch_memory_words USING fts5(
            {_NAMES}, content='', tokenize='porter ascii')
        """,
        f"""
        CREATE TRIGGER anabranch_memory_added AFTER INSERT ON anabranch_memory BEGIN
            INSERT INTO anabranch_memory_words_place (place) SELECT new.place
            WHERE NOT EXISTS (SELECT 1 FROM anabranch_memory_words_place WHERE place = new.place);
            INSERT INTO anabranch_memory_words (rowid, {_NAMES})
            SELECT {_ROW.format("new")}, {", ".join(f"new.{name}" for name in _WORDS)}
            FROM anabranch_memory_words_place WHERE place = new.place;
        END
        """,  # noqa: S608 - only names of columns
        f"""
        CREATE TRIGGER anabranch_memory_deleted AFTER DELETE ON anabranch_memory BEGIN
            INSERT INTO anabranch_memory_words (anabranch_memory_words, rowid, {_NAMES})
            SELECT 'delete', {_ROW.format("old")}, {", ".join(f"old.{name}" for name in _WORDS)}
            FROM anabranch_memory_words_place WHERE place = old.place;
        END
        """,  # noqa: S608 - only names of columns
    ),
    "postgresql": (
        """
        ALTER TABLE anabranch_memory ADD COLUMN words tsvector GENERATED ALWAYS AS (
            setweight(to_tsvector('english', title_words), 'A')
            || setweight(to_tsvector('english', description_words), 'B')
            || setweight(to_tsvector('english', content_words), 'C')
        ) STORED
        """,
        "CREATE INDEX anabranch_memory_words ON anabranch_memory USING gin (words)",
    ),
}


@event.listens_for(MEMORY, "after_create")
def _make_index(_table: sa.Table, connection: sa.Connection, **_: object) -> None:
    for statement in _INDEX[connection.dialect.name]:
        connection.execute(sa.text(statement))


def _of_memory() -> sa.Column[int]:
    key = sa.ForeignKey("anabranch_memory.seq", ondelete="CASCADE")
    return sa.Column[int]("memory", sa.BigInteger(), key, primary_key=True, autoincrement=False)


VECTOR = sa.Table(
    "anabranch_memory_vector",
    metadata,
    _of_memory(),
    sa.Column[str]("embedder", sa.Text, primary_key=True),
    # Half-precision numbers; on Postgres an array that pgvector converts to its vectors.
    sa.Column[Any](
        "vector",
        sa.LargeBinary().with_variant(postgresql.ARRAY(sa.REAL), "postgresql"),
        nullable=False,
    ),
)
VOTE = sa.Table(
    "anabranch_memory_vote",
    metadata,
    _of_memory(),
    sa.Column[str]("voter", sa.Text, primary_key=True),
    sa.Column[bool]("helpful", sa.Boolean, nullable=False),
)
_IS_DUE = sa.text("branch <> ''")
QUEUE = sa.Table(
    "anabranch_memory_queue",
    metadata,
    sa.Column[str]("branch_id", sa.Text, primary_key=True),
    # Empty once the branch has been learned from; the row then only records that.
    sa.Column[str]("branch", sa.Text, nullable=False),
    sa.Column[float]("queued_at", sa.Double(), nullable=False),
    sa.Column[int]("attempts", sa.Integer, nullable=False),
    sa.Column[float]("due_at", sa.Double(), nullable=False),
    sa.Column[str]("owner", sa.Text),
    sa.Column[str]("problem", sa.Text),
    partial_index("anabranch_memory_due", "due_at", where=_IS_DUE),
)

DUE = (
    sa.select(QUEUE.c.branch_id)
    .where(QUEUE.c.branch != "", QUEUE.c.due_at <= sa.bindparam("now"))
    .order_by(QUEUE.c.due_at, QUEUE.c.queued_at, QUEUE.c.branch_id)
    .limit(1)
    .with_for_update(skip_locked=True)  # another process leases locked rows; SQLite ignores this
)


def place_of(scope: Scope) -> str:
    """Return a word for the text index that identifies ``scope``."""
    return "p" + hashlib.sha256(f"{scope.level}:{scope.name}".encode()).hexdigest()[:24]


_FIELDS = ("id", "title", "description", "content", "task", "prior", "helpful", "unhelpful")
_COLUMNS = (*_FIELDS, "level", "owner", "provenance", "created_at")
MEMORIES = sa.select(*(MEMORY.c[name] for name in _COLUMNS))
"""Selects memories; :func:`to_memory` reads the rows."""
NUMBERED = sa.select(MEMORY.c.seq, *MEMORIES.selected_columns)
"""Selects memories, each after its number."""


def memory_row(memory: Memory) -> dict[str, Any]:
    return {
        **{name: getattr(memory, name) for name in _FIELDS},
        "place": place_of(memory.scope),
        "digest": memory.digest,
        "level": memory.scope.level,
        "owner": memory.scope.name,
        "confidence": memory.confidence,
        "provenance": memory.provenance.model_dump_json(exclude_none=True),
        "created_at": memory.created_at,
        "title_words": indexed(memory.title),
        "description_words": indexed(memory.description),
        "content_words": indexed(f"{memory.content}\n{memory.task}"),
    }


def to_memory(row: Sequence[Any]) -> Memory:
    """Return the memory in a row of :data:`MEMORIES`, without validating its fields again."""
    fields = dict(zip(_COLUMNS, row, strict=True))
    level, name = fields.pop("level"), fields.pop("owner")
    fields["provenance"] = Provenance.model_validate_json(fields["provenance"])
    return unchecked(Memory, scope=unchecked(Scope, level=level, name=name), **fields)


def allowed(which: Filter) -> list[sa.ColumnElement[bool]]:
    conditions = [MEMORY.c.confidence >= which.min_confidence]
    if which.scopes is not None:
        conditions.append(MEMORY.c.place.in_([place_of(scope) for scope in which.scopes]))
    return conditions


def in_order(
    connection: sa.Connection, seqs: Sequence[int], *conditions: sa.ColumnElement[bool]
) -> list[Memory]:
    """Return the memories of the numbers ``seqs``, in that order, that meet ``conditions``."""
    finding = NUMBERED.where(MEMORY.c.seq.in_(seqs), *conditions)
    found = {row[0]: row[1:] for row in connection.execute(finding)}
    return [to_memory(found[seq]) for seq in seqs if seq in found]
