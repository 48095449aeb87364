"""The searches for memories: by words, and by vectors of embedders.

Words: a word that nearly every memory has costs much and distinguishes little. So the search first
counts each word, up to :data:`COMMON`. The search then takes the rarest words, as long as they
match at most :data:`ENOUGH` rows together. This bounds the cost of a search, whatever the number of
memories.

Vectors are normalised, so the cosine of two vectors is their product.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.types import UserDefinedType

from anabranch.errors import StoreError, needs_extra
from anabranch.memory import Filter, Memory
from anabranch.stores._database import Database
from anabranch.stores._memory_tables import (
    MEMORIES,
    MEMORY,
    VECTOR,
    allowed,
    in_order,
    place_of,
    to_memory,
)
from anabranch.stores._sql import insert_of

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
_INDEXED: sa.ColumnElement[Any] = sa.literal_column("anabranch_memory.words")


def search(
    connection: sa.Connection, words: Sequence[str], which: Filter, *, is_postgresql: bool
) -> list[Memory]:
    """Return the memories that have any of the words, the most relevant first."""
    looking = _on_postgresql if is_postgresql else _on_sqlite
    return looking(connection, words[:WORDS], which)


def rarest(counts: Mapping[str, int]) -> list[str]:
    """Return the words to search for: the rarest or, if all are common, a few common words."""
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
        seqs = [-seq for _, seq in ranked[start : start + step]]
        found += in_order(connection, seqs, MEMORY.c.confidence >= which.min_confidence)
        if len(found) >= which.limit:
            break
    return found[: which.limit]


def _ranges(connection: sa.Connection, which: Filter) -> list[range]:
    """Return the ranges of row numbers that SQLite's index has for the scopes of ``which``."""
    if which.scopes is None:
        return [_ALL]
    places = [place_of(scope) for scope in which.scopes]
    numbers = connection.execute(_PLACES, {"places": places}).scalars()
    return [range(number << 32, (number + 1) << 32) for number in numbers]


def _on_postgresql(connection: sa.Connection, words: Sequence[str], which: Filter) -> list[Memory]:
    def has(word: str) -> sa.ColumnElement[bool]:
        return _INDEXED.op("@@")(sa.func.to_tsquery("english", word))

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
        rank = sa.func.ts_rank(_INDEXED, sa.func.to_tsquery("english", word), 1)
        score += math.log1p(COMMON / counts[word]) * rank
    finding = (
        MEMORIES.where(sa.or_(*map(has, chosen)), *conditions)
        .order_by(score.desc(), MEMORY.c.seq.desc())
        .limit(which.limit)
    )
    return [to_memory(row) for row in connection.execute(finding)]


_PGVECTOR = (
    "The Postgres store lacks pgvector (0.8 or newer), which embeddings need: install it and let an"
    " administrator run CREATE EXTENSION vector, or configure no embedder."
)
_LOCK = 0x616E6164  # any number except those of other locks of this package


class Vectors:
    def __init__(self, database: Database) -> None:
        self._database = database
        insert = insert_of(database.dialect)
        given = (
            sa.bindparam("embedder", type_=sa.Text),
            sa.bindparam("vector", type_=VECTOR.c.vector.type),
        )
        row = sa.select(MEMORY.c.seq, *given).where(MEMORY.c.id == sa.bindparam("this"))
        adding = insert(VECTOR).from_select(["memory", "embedder", "vector"], row)
        self._add: sa.Insert = adding.on_conflict_do_nothing()
        self._schema = ""

    async def add(self, embedder: str, vectors: Mapping[str, Sequence[float]]) -> None:
        encode = _normalised if self._database.is_postgresql else _packed
        rows = [
            {"this": memory_id, "embedder": embedder, "vector": encode(vector)}
            for memory_id, vector in vectors.items()
        ]

        def work(connection: sa.Connection) -> None:
            if self._database.is_postgresql:
                self._make_index(connection, embedder, len(rows[0]["vector"]))
            for row in rows:
                connection.execute(self._add, row)

        if rows:
            await self._database.write(work)

    async def nearest(
        self, embedder: str, vector: Sequence[float], which: Filter, min_similarity: float
    ) -> list[Memory]:
        find = self._by_pgvector if self._database.is_postgresql else _by_scan

        def work(connection: sa.Connection) -> list[Memory]:
            return find(connection, embedder, vector, which, min_similarity)

        return await self._database.read_at_once(work)

    def _by_pgvector(
        self,
        connection: sa.Connection,
        embedder: str,
        vector: Sequence[float],
        which: Filter,
        min_similarity: float,
    ) -> list[Memory]:
        kind = _HalfVector(self._pgvector(connection), len(vector))
        # Otherwise the index reads a few neighbours only, and the filter may exclude them all.
        connection.execute(sa.text("SET LOCAL hnsw.iterative_scan = strict_order"))
        cosine = sa.cast(VECTOR.c.vector, kind).op(f'OPERATOR("{kind.schema}".<=>)')
        distance: sa.ColumnElement[Any] = cosine(
            sa.cast(sa.bindparam("vector", type_=sa.Text), kind)
        )
        finding = (
            MEMORIES.join_from(MEMORY, VECTOR, VECTOR.c.memory == MEMORY.c.seq)
            .where(VECTOR.c.embedder == embedder, *allowed(which), distance <= 1 - min_similarity)
            .order_by(distance)
            .limit(which.limit)
        )
        rows = connection.execute(finding, {"vector": str(_normalised(vector))})
        return list(map(to_memory, rows))

    def _make_index(self, connection: sa.Connection, embedder: str, dim: int) -> None:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        schema = self._pgvector(connection)
        name = hashlib.sha256(f"{embedder} {dim}".encode()).hexdigest()[:16]
        literal = "'" + embedder.replace("'", "''") + "'"
        vector = f'CAST(vector AS "{schema}".halfvec({dim}))'
        connection.exec_driver_sql(
            f"CREATE INDEX IF NOT EXISTS anabranch_memory_hnsw_{name} ON anabranch_memory_vector"
            f' USING hnsw (({vector}) "{schema}".halfvec_cosine_ops) WHERE embedder = {literal}'
        )

    def _pgvector(self, connection: sa.Connection) -> str:
        """Return the schema of pgvector, which need not be on the search path."""
        if not self._schema:
            finding = sa.text(
                "SELECT nspname FROM pg_extension JOIN pg_namespace ON extnamespace = pg_namespace.oid"
                " WHERE extname = 'vector'"
            )
            found = connection.scalar(finding)
            if found is None:
                try:
                    with connection.begin_nested():
                        connection.execute(sa.text("CREATE EXTENSION vector"))
                except exc.DBAPIError as error:
                    raise StoreError(_PGVECTOR) from error
                found = connection.scalar(finding)
            self._schema = str(found).replace('"', '""')
        return self._schema


class _HalfVector(UserDefinedType[str]):
    """pgvector's vectors of half-precision numbers."""

    cache_ok = True

    def __init__(self, schema: str, dim: int) -> None:
        self.schema = schema
        self.dim = dim

    def get_col_spec(self, **_: object) -> str:
        return f'"{self.schema}".halfvec({self.dim})'


def _normalised(vector: Sequence[float]) -> list[float]:
    length = math.sqrt(math.fsum(x * x for x in vector)) or 1.0
    return [float(x) / length for x in vector]


def _numpy() -> Any:  # noqa: ANN401 - numpy is optional, so its types may be missing
    with needs_extra("memory", "The search for vectors in a SQLite store", StoreError):
        return import_module("numpy")


def _packed(vector: Sequence[float]) -> bytes:
    packed: bytes = _numpy().asarray(_normalised(vector), dtype="<f2").tobytes()
    return packed


def _by_scan(
    connection: sa.Connection,
    embedder: str,
    vector: Sequence[float],
    which: Filter,
    min_similarity: float,
) -> list[Memory]:
    numpy = _numpy()
    scanning = (
        sa.select(VECTOR.c.memory, VECTOR.c.vector)
        .join_from(VECTOR, MEMORY, VECTOR.c.memory == MEMORY.c.seq)
        .where(VECTOR.c.embedder == embedder, *allowed(which))
    )
    # A vector of another length comes from an embedder that changed but kept its name.
    size = 2 * len(vector)
    rows = [row for row in connection.execute(scanning).fetchall() if len(row[1]) == size]
    if not rows:
        return []
    matrix = numpy.frombuffer(b"".join(row[1] for row in rows), dtype="<f2").reshape(len(rows), -1)
    similarity = matrix.astype("<f4") @ numpy.asarray(_normalised(vector), dtype="<f4")
    best = numpy.argsort(-similarity, kind="stable")[: which.limit]
    seqs: list[int] = [rows[at][0] for at in best.tolist() if similarity[at] >= min_similarity]
    return in_order(connection, seqs)
