"""A store of memories for each test."""

from collections.abc import AsyncIterator

import pytest

from anabranch.memory import MemoryStore
from anabranch.stores import open_memory_store


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    """A new store in memory."""
    store = open_memory_store("memory:")
    yield store
    await store.close()
