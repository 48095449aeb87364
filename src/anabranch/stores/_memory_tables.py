"""The tables of memories, their full-text index, and the SQL that reads and writes them.

The columns of words have the terms that :func:`~anabranch.memory.indexed` returns, so that both databases
find the same in every script. The index of SQLite is an FTS5 table beside the rows, which triggers of
the migration follow; that of Postgres is a column which the database computes. On SQLite the rows of a scope are a range: the
number of its place is in their upper half, the memory's ``seq`` in the lower one. So a search looks
at what may be found alone, and its cost does not depend on what others remember.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from anabranch.memory import Filter, Memory, Provenance, Scope, indexed
from anabranch.messages import unchecked
from anabranch.stores._columns import metadata


def _seq() -> sa.Column[int]:
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    return sa.Column[int]("seq", number, sa.Identity(), primary_key=True)


MEMORY = sa.Table(
    "anabranch_memory",
    metadata,
    _seq(),
    sa.Column[str]("id", sa.Text, nullable=False, unique=True),
    sa.Column[str]("place", sa.Text, nullable=False),
    sa.Column[str]("digest", sa.Text, nullable=False),
    sa.Column[str]("level", sa.Text, nullable=False),
    sa.Column[str]("owner", sa.Text, nullable=False),
    sa.Column[str]("title", sa.Text, nullable=False),
    sa.Column[str]("description", sa.Text, nullable=False),
    sa.Column[str]("content", sa.Text, nullable=False),
    sa.Column[str]("task", sa.Text, nullable=False),
    sa.Column[float]("confidence", sa.Double(), nullable=False),
    sa.Column[float]("prior", sa.Double(), nullable=False),
    sa.Column[int]("helpful", sa.Integer, nullable=False),
    sa.Column[int]("unhelpful", sa.Integer, nullable=False),
    sa.Column[str]("provenance", sa.Text, nullable=False),
    sa.Column[float]("created_at", sa.Double(), nullable=False),
    sa.Column[str]("title_words", sa.Text, nullable=False),
    sa.Column[str]("description_words", sa.Text, nullable=False),
    sa.Column[str]("content_words", sa.Text, nullable=False),
    sa.UniqueConstraint("place", "digest"),
    sa.Index("anabranch_memory_newest", "place", "seq"),
)
VECTOR = sa.Table(
    "anabranch_memory_vector",
    metadata,
    sa.Column[int](
        "memory",
        sa.BigInteger(),
        sa.ForeignKey("anabranch_memory.seq", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column[str]("embedder", sa.Text, primary_key=True),
    # Half-precision numbers; on Postgres what pgvector makes its own vectors of.
    sa.Column[Any](
        "vector",
        sa.LargeBinary().with_variant(postgresql.ARRAY(sa.REAL), "postgresql"),
        nullable=False,
    ),
)
VOTE = sa.Table(
    "anabranch_memory_vote",
    metadata,
    sa.Column[int](
        "memory",
        sa.BigInteger(),
        sa.ForeignKey("anabranch_memory.seq", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    sa.Column[str]("voter", sa.Text, primary_key=True),
    sa.Column[bool]("helpful", sa.Boolean, nullable=False),
)
_IS_DUE = sa.text("branch <> ''")
QUEUE = sa.Table(
    "anabranch_memory_queue",
    metadata,
    sa.Column[str]("branch_id", sa.Text, primary_key=True),
    # Empty when the work on it has ended: what is left says that it has been done.
    sa.Column[str]("branch", sa.Text, nullable=False),
    sa.Column[float]("queued_at", sa.Double(), nullable=False),
    sa.Column[int]("attempts", sa.Integer, nullable=False),
    sa.Column[float]("due_at", sa.Double(), nullable=False),
    sa.Column[str]("owner", sa.Text),
    sa.Column[str]("problem", sa.Text),
    sa.Index("anabranch_memory_due", "due_at", sqlite_where=_IS_DUE, postgresql_where=_IS_DUE),
)

DUE = (
    sa.select(QUEUE.c.branch_id)
    .where(QUEUE.c.branch != "", QUEUE.c.due_at <= sa.bindparam("now"))
    .order_by(QUEUE.c.due_at, QUEUE.c.queued_at, QUEUE.c.branch_id)
    .limit(1)
    .with_for_update(skip_locked=True)  # another process leases those; SQLite ignores it
)


def place_of(scope: Scope) -> str:
    """Return one word for a scope, which no other scope has."""
    return "p" + hashlib.sha256(f"{scope.level}:{scope.name}".encode()).hexdigest()[:24]


COLUMNS = [
    "id",
    "level",
    "owner",
    "title",
    "description",
    "content",
    "task",
    "prior",
    "helpful",
    "unhelpful",
    "provenance",
    "created_at",
]
"""The columns of a row that becomes a memory, in the order of :func:`to_memory`."""


def memory_row(memory: Memory) -> dict[str, Any]:
    """Return the row of a new memory."""
    fields = ("id", "title", "description", "content", "task", "prior", "helpful", "unhelpful")
    return {
        **{name: getattr(memory, name) for name in fields},
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
    """Return the memory in a row of :data:`COLUMNS`; what was validated is not validated again."""
    fields = dict(zip(COLUMNS, row, strict=True))
    level, name = fields.pop("level"), fields.pop("owner")
    fields["provenance"] = Provenance.model_validate_json(fields["provenance"])
    return unchecked(Memory, scope=unchecked(Scope, level=level, name=name), **fields)


def allowed(which: Filter) -> list[sa.ColumnElement[bool]]:
    """Return the conditions of a filter."""
    conditions = [MEMORY.c.confidence >= which.min_confidence]
    if which.scopes is not None:
        conditions.append(MEMORY.c.place.in_([place_of(scope) for scope in which.scopes]))
    return conditions


WORDS = 24
"""How many words of a search are counted."""

COMMON = 1_000
"""As many memories are counted for one word; one that has more is as common as any."""

ENOUGH = 1_000
"""The rarest words are taken until they may find this many memories together; no more are ranked."""

FEW = 3
"""How many words are taken where all are common; then the latest memories that have them are ranked."""

_ROWS = "anabranch_memory_words MATCH :query AND rowid BETWEEN :first AND :last"
_COUNT = f"SELECT count(*) FROM (SELECT 1 FROM anabranch_memory_words WHERE {_ROWS} LIMIT :most)"  # noqa: S608
_RANK = (
    "SELECT bm25(anabranch_memory_words, 2.0, 1.5, 1.0), -(rowid & 0xffffffff)"  # noqa: S608
    f" FROM anabranch_memory_words WHERE {_ROWS} ORDER BY rowid DESC LIMIT :enough"
)
"""The weights are those of title, of description, and of content and task together."""

_PLACES = sa.text(
    "SELECT number FROM anabranch_memory_words_place WHERE place IN :places"
).bindparams(sa.bindparam("places", expanding=True))
_ALL = range(2**63)
_WORDS: sa.ColumnElement[Any] = sa.literal_column("anabranch_memory.words")


def search(
    connection: sa.Connection, words: Sequence[str], which: Filter, *, is_postgresql: bool
) -> list[Memory]:
    """Return the memories that have any of the words, the most relevant first."""
    looking = _on_postgresql if is_postgresql else _on_sqlite
    return looking(connection, words[:WORDS], which)


def rarest(counts: Mapping[str, int]) -> list[str]:
    """Return the words to search for: the rarest, or a few of the common ones if there are no others."""
    chosen: list[str] = []
    total = 0
    for word, count in sorted(counts.items(), key=lambda item: item[1]):
        if 0 < count < COMMON and total + count <= ENOUGH:
            chosen.append(word)
            total += count
    return chosen or [word for word, count in counts.items() if count][:FEW]


def _on_sqlite(connection: sa.Connection, words: Sequence[str], which: Filter) -> list[Memory]:
    def find(statement: str, rows: range, *those: str) -> Sequence[sa.Row[Any]]:
        values = {
            "query": " OR ".join(f'"{one}"' for one in those),
            "first": rows[0],
            "last": rows[-1],
            "most": COMMON,
            "enough": ENOUGH,
        }
        return connection.exec_driver_sql(statement, values).fetchall()

    ranges = _ranges(connection, which)
    counts = {word: sum(find(_COUNT, rows, word)[0][0] for rows in ranges) for word in words}
    if not (chosen := rarest(counts)):
        return []
    # By the score, the best of which is the smallest; of the same score the newest comes first.
    ranked = sorted(tuple(row) for rows in ranges for row in find(_RANK, rows, *chosen))
    found: list[Memory] = []
    step = max(which.limit, 1)
    for start in range(0, len(ranked), step):
        found += _read(connection, [-seq for _, seq in ranked[start : start + step]], which)
        if len(found) >= which.limit:
            break
    return found[: which.limit]


def _ranges(connection: sa.Connection, which: Filter) -> list[range]:
    """Return where the rows of the scopes are in the index."""
    if which.scopes is None:
        return [_ALL]
    places = [place_of(scope) for scope in which.scopes]
    numbers = connection.execute(_PLACES, {"places": places}).scalars()
    return [range(number << 32, (number + 1) << 32) for number in numbers]


def _read(connection: sa.Connection, seqs: Sequence[int], which: Filter) -> list[Memory]:
    """Return those of the memories that are reliable enough, in the given order."""
    finding = sa.select(MEMORY.c.seq, *(MEMORY.c[name] for name in COLUMNS)).where(
        MEMORY.c.seq.in_(seqs), MEMORY.c.confidence >= which.min_confidence
    )
    rows = {row[0]: row[1:] for row in connection.execute(finding)}
    return [to_memory(rows[seq]) for seq in seqs if seq in rows]


def _on_postgresql(connection: sa.Connection, words: Sequence[str], which: Filter) -> list[Memory]:
    def has(word: str) -> sa.ColumnElement[bool]:
        return _WORDS.op("@@")(sa.func.to_tsquery("english", word))

    conditions = allowed(which)
    counts: dict[str, int] = {}
    for word in words:
        some = sa.select(sa.literal(1)).select_from(MEMORY).where(has(word), *conditions)
        counting = sa.select(sa.func.count()).select_from(some.limit(COMMON).subquery())
        counts[word] = connection.scalar(counting) or 0
    if not (chosen := rarest(counts)):
        return []
    # Postgres ranks without regard to how rare a word is, so each word is ranked by itself.
    score: sa.ColumnElement[Any] = sa.literal(0.0)
    for word in chosen:
        rank = sa.func.ts_rank(_WORDS, sa.func.to_tsquery("english", word), 1)
        score += math.log1p(COMMON / counts[word]) * rank
    finding = (
        sa.select(*(MEMORY.c[name] for name in COLUMNS))
        .where(sa.or_(*map(has, chosen)), *conditions)
        .order_by(score.desc(), MEMORY.c.seq.desc())
        .limit(which.limit)
    )
    return [to_memory(row) for row in connection.execute(finding)]
