"""The full-text search of memories: FTS5 on SQLite, a ``tsvector`` on Postgres.

A word that nearly every memory has costs much and distinguishes little. So the search first counts
each word, up to :data:`COMMON`. It then takes the rarest words, as long as they match at most
:data:`ENOUGH` rows together. This bounds the cost of a search, whatever the number of memories.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from anabranch.memory import Filter, Memory
from anabranch.stores._memory_rows import COLUMNS, allowed, to_memory
from anabranch.stores._memory_tables import MEMORY, place_of

WORDS = 24
"""Maximum words of a search that are counted."""

COMMON = 1_000
"""Maximum memories counted for one word; a word with more matches is common."""

ENOUGH = 1_000
"""Maximum memories that are ranked; the search takes the rarest words up to this number of matches."""

FEW = 3
"""Number of words taken if all are common; then the latest memories with these words are ranked."""

_ROWS = "anabranch_memory_words MATCH :query AND rowid BETWEEN :first AND :last"
_COUNT = f"SELECT count(*) FROM (SELECT 1 FROM anabranch_memory_words WHERE {_ROWS} LIMIT :most)"  # noqa: S608
_RANK = (
    "SELECT bm25(anabranch_memory_words, 2.0, 1.5, 1.0), -(rowid & 0xffffffff)"  # noqa: S608
    f" FROM anabranch_memory_words WHERE {_ROWS} ORDER BY rowid DESC LIMIT :enough"
)
"""The weights are for the title, the description, and the content with the task."""

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
    """Return the words to search for: the rarest, or a few common ones if all are common."""
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
    # The smallest score is the best; of equal scores, the newest memory comes first.
    ranked = sorted(tuple(row) for rows in ranges for row in find(_RANK, rows, *chosen))
    found: list[Memory] = []
    step = max(which.limit, 1)
    for start in range(0, len(ranked), step):
        found += _read(connection, [-seq for _, seq in ranked[start : start + step]], which)
        if len(found) >= which.limit:
            break
    return found[: which.limit]


def _ranges(connection: sa.Connection, which: Filter) -> list[range]:
    """Return the ranges of rows that the index has for the scopes."""
    if which.scopes is None:
        return [_ALL]
    places = [place_of(scope) for scope in which.scopes]
    numbers = connection.execute(_PLACES, {"places": places}).scalars()
    return [range(number << 32, (number + 1) << 32) for number in numbers]


def _read(connection: sa.Connection, seqs: Sequence[int], which: Filter) -> list[Memory]:
    """Return the memories that are reliable enough, in the given order."""
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
    # Postgres does not rank rare words higher, so each word is ranked separately.
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
