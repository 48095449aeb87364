"""Vector search of memories, on SQLite and with pgvector, and the packages that it needs."""

import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa

from anabranch.errors import StoreError
from anabranch.memory import Filter, Memory, MemoryStore, Scope
from anabranch.stores import open_memory_store
from anabranch.stores._engines import read_url
from tests.postgres import Server

OURS, THEIRS = Scope(name="ours"), Scope(name="theirs")
ALL = Filter()


def a_memory(memory_id: str, scope: Scope = OURS, prior: float = 0.75) -> Memory:
    fields: dict[str, Any] = {
        "id": memory_id,
        "title": "t",
        "description": "d",
        "content": memory_id,
    }
    return Memory(**fields, scope=scope, prior=prior, created_at=1.0)


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(read_url(url).url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


@pytest.fixture
async def store(url: str) -> AsyncIterator[MemoryStore]:
    store = open_memory_store(url)
    yield store
    await store.close()


async def nearest(
    store: MemoryStore, *vector: float, which: Filter = ALL, least: float = -1.0
) -> str:
    found = await store.nearest("model", vector, which, least)
    return " ".join(memory.id for memory in found)


async def test_the_nearest_vector_comes_first_for_any_length(store: MemoryStore) -> None:
    await store.add([a_memory(name) for name in ("east", "north", "west")])
    await store.add_vectors("model", {"east": [9.0, 0.0], "north": [0.0, 0.1], "west": [-1.0, 0.0]})

    assert await nearest(store, 1.0, 0.5) == "east north west"
    assert await nearest(store, 100.0, 50.0, which=Filter(limit=2)) == "east north"
    assert await nearest(store, 1.0, 0.5, least=0.8) == "east"
    assert await nearest(store, -1.0, 0.1) == "west north east"
    assert await nearest(store, 1.0, 0.0, least=0.99999) == "east"


async def test_an_excluded_memory_takes_no_place_in_the_results(store: MemoryStore) -> None:
    others = [a_memory(f"{n}", THEIRS) for n in range(100)]
    await store.add([*others, a_memory("weak", prior=0.5), a_memory("ours")])
    await store.add_vectors(
        "model", {each.id: [1.0, n / 1000] for n, each in enumerate(others)} | {"weak": [1.0, 0.0]}
    )
    await store.add_vectors("model", {"ours": [0.0, 1.0]})

    assert await nearest(store, 1.0, 0.0, which=Filter((OURS,), 0.7, 3)) == "ours"


async def test_vectors_of_different_embedders_are_never_compared(store: MemoryStore) -> None:
    """Vectors of different lengths are never compared either, if a model changes under its name."""
    await store.add([a_memory("one"), a_memory("two")])
    await store.add_vectors("model", {"one": [1.0, 0.0]})
    await store.add_vectors("it's: other", {"two": [1.0, 0.0, 0.0]})

    assert await nearest(store, 1.0, 0.0) == "one"
    found = await store.nearest("it's: other", [1.0, 0.0, 0.0], ALL, 0.0)
    assert [each.id for each in found] == ["two"]


async def test_memories_without_a_vector_are_listed_until_they_have_one(store: MemoryStore) -> None:
    await store.add([a_memory("one"), a_memory("two")])

    assert [each.id for each in await store.without_vector("model", 1)] == ["one"]
    await store.add_vectors("model", {"one": [1.0], "unknown": [1.0]})
    await store.add_vectors("model", {"one": [2.0]})
    await store.add_vectors("model", {})
    assert [each.id for each in await store.without_vector("model", 9)] == ["two"]

    await store.forget("one")
    assert await nearest(store, 1.0) == ""


async def test_without_pgvector_the_error_names_the_package(postgres: Server) -> None:
    """Operations without vectors work."""
    url = postgres.new_url(user="plain")
    owner = url.replace("plain@", "postgres@")
    store = open_memory_store(owner)
    await store.add([a_memory("one")])
    await store.close()
    schema = url.rpartition("%3D")[2]
    execute(
        owner,
        "DROP EXTENSION IF EXISTS vector CASCADE",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO plain",
    )

    store = open_memory_store(url)
    for attempt in (
        store.add_vectors("model", {"one": [1.0]}),
        store.nearest("model", [1.0], ALL, 0.0),
    ):
        with pytest.raises(StoreError, match="CREATE EXTENSION vector"):
            await attempt
    assert [each.id for each in await store.search(["one"], ALL)] == ["one"]
    await store.close()


async def test_without_numpy_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_memory_store("memory:")
    await store.add([a_memory("one")])
    monkeypatch.setitem(sys.modules, "numpy", None)

    with pytest.raises(StoreError, match=r"needs the package 'numpy'.*\[memory\]"):
        await store.add_vectors("model", {"one": [1.0]})

    await store.close()
