"""The store of these tests passes the checks of every store."""

import pytest

from anabranch.testing.suites import TREE_STORE_CHECKS, TreeStoreCheck
from tests.agents.memory import MemoryTrees


def name_of(check: TreeStoreCheck) -> str:
    return getattr(check, "__name__", repr(check))


@pytest.mark.parametrize("check", TREE_STORE_CHECKS, ids=name_of)
async def test_the_store_in_dictionaries_passes_the_check(check: TreeStoreCheck) -> None:
    await check(MemoryTrees)
