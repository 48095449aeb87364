"""A memory search looks for a limited number of words, so that its cost stays bounded."""

import pytest

from anabranch.memory import Filter, Memory, Scope
from anabranch.stores import _memory_search as searching
from anabranch.stores import open_memory_store


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "COMMON", 4)
    monkeypatch.setattr(searching, "ENOUGH", 5)


@pytest.mark.parametrize(
    ("counts", "chosen"),
    [
        ({"common": 4, "none": 0, "rare": 1, "rarer": 2}, ["rare", "rarer"]),
        ({"a": 3, "b": 2, "c": 1}, ["c", "b"]),
        ({"a": 4, "b": 4, "none": 0, "c": 4, "d": 4}, ["a", "b", "c"]),
        ({"none": 0}, []),
    ],
    ids=["rare", "enough", "common", "none"],
)
def test_a_search_uses_the_rarest_words(counts: dict[str, int], chosen: list[str]) -> None:
    assert searching.rarest(counts) == chosen


async def test_a_search_for_a_common_word_ranks_the_latest_memories() -> None:
    store = open_memory_store("memory:")
    memories = [
        Memory(
            id=f"{n}", title="Builds", description="d", content=f"{n}", scope=Scope(), created_at=1
        )
        for n in range(9)
    ]
    await store.add(memories)
    found = await store.search(["builds"], Filter(limit=9))
    assert [each.id for each in found] == ["8", "7", "6", "5", "4"]
    await store.close()
