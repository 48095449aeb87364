"""The tree store of ``memory.py`` passes the checks of every store."""

import pytest

from tests.agents.memory import MemoryTrees
from tests.suites.tree_samples import TreeStoreCheck
from tests.suites.tree_store_checks import TREE_STORE_CHECKS


def name_of(check: TreeStoreCheck) -> str:
    return getattr(check, "__name__", repr(check))


@pytest.mark.parametrize("check", TREE_STORE_CHECKS, ids=name_of)
async def test_the_store_in_dictionaries_passes_the_check(check: TreeStoreCheck) -> None:
    await check(MemoryTrees)
