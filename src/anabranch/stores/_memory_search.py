"""The full-text search of memories: FTS5 on SQLite, a ``tsvector`` on Postgres.

A word that nearly every memory has costs much and says little. So each word is first counted, up to
:data:`COMMON`, and the search takes the rarest words while they find no more than :data:`ENOUGH`
rows together. The cost of a search is bounded by this, whatever the number of memories.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from anabranch.memory import Filter, Memory
from anabranch.stores._memory_rows import COLUMNS, allowed, to_memory
from anabranch.stores._memory_tables import MEMORY, place_of

__all__ = ["COMMON", "ENOUGH", "WORDS", "rarest", "search"]

WORDS = 24
"""How many words of a search are counted."""

COMMON = 2_000
"""As many memories are counted for one word; one that has more is as common as any."""

ENOUGH = 4_000
"""The rarest words are taken until they may find this many memories together."""

_SELECTED = ", ".join(f"memory.{name}" for name in COLUMNS)
_WEIGHTS = "0.0, 2.0, 1.5, 1.0, 1.0"
"""Of place, title, description, content and task in BM25."""

_COUNT_SQLITE = sa.text(
    "SELECT count(*) FROM (SELECT 1 FROM anabranch_memory_words"
    " WHERE anabranch_memory_words MATCH :query LIMIT :most)"
)
_SEARCH_SQLITE = sa.text(f"""
    SELECT {_SELECTED} FROM anabranch_memory_words AS words
    JOIN anabranch_memory AS memory ON memory.seq = words.rowid
    WHERE words.anabranch_memory_words MATCH :query AND memory.confidence >= :min_confidence
    ORDER BY bm25(anabranch_memory_words, {_WEIGHTS}), memory.seq DESC LIMIT :most
""")  # noqa: S608 - only names of columns
_WORDS: sa.ColumnElement[Any] = sa.literal_column("anabranch_memory.words")


def search(
    connection: sa.Connection, words: Sequence[str], which: Filter, *, is_postgresql: bool
) -> list[Memory]:
    """Return the memories that have any of the words, the most relevant first."""
    looking = _on_postgresql if is_postgresql else _on_sqlite
    return looking(connection, words[:WORDS], which)


def rarest(counts: Mapping[str, int]) -> list[str]:
    """Return the words to search for: those that occur, and of these the rarest."""
    chosen: list[str] = []
    total = 0
    for word, count in sorted(counts.items(), key=lambda item: item[1]):
        if count and (not chosen or total + count <= ENOUGH):
            chosen.append(word)
            total += count
    return chosen


def _on_sqlite(connection: sa.Connection, words: Sequence[str], which: Filter) -> list[Memory]:
    def query(*those: str) -> str:
        found = (
            "{title description content task} : (" + " OR ".join(f'"{one}"' for one in those) + ")"
        )
        if which.scopes is None:
            return found
        places = " OR ".join(place_of(scope) for scope in which.scopes)
        return f"place : ({places}) AND {found}"

    counts = {
        word: connection.execute(_COUNT_SQLITE, {"query": query(word), "most": COMMON}).scalar_one()
        for word in words
    }
    if not (chosen := rarest(counts)):
        return []
    values = {
        "query": query(*chosen),
        "min_confidence": which.min_confidence,
        "most": which.limit,
    }
    return [to_memory(row) for row in connection.execute(_SEARCH_SQLITE, values)]


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
