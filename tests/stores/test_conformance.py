"""Every kind of store passes the published suite."""

from collections.abc import Sequence
from inspect import iscoroutinefunction
from types import ModuleType

import pytest

from anabranch.testing.suites import _call_rounds as store_rounds
from anabranch.testing.suites import _call_sharing as store_sharing
from anabranch.testing.suites import _call_suite as store_suite
from anabranch.testing.suites import _tree_changes as tree_changes
from anabranch.testing.suites import _tree_sharing as tree_sharing
from anabranch.testing.suites import _tree_suite as tree_suite
from anabranch.testing.suites._call_sharing import SHARED_CALL_STORE_CHECKS
from anabranch.testing.suites._call_suite import CALL_STORE_CHECKS, Check, OpenStore
from anabranch.testing.suites._tree_sharing import SHARED_TREE_STORE_CHECKS
from anabranch.testing.suites._tree_suite import TREE_STORE_CHECKS, OpenTreeStore, TreeCheck


def name_of(check: Check | TreeCheck) -> str:
    return getattr(check, "__name__", repr(check))


SUITES: Sequence[tuple[ModuleType, Sequence[Check | TreeCheck]]] = [
    (store_suite, CALL_STORE_CHECKS),
    (store_rounds, CALL_STORE_CHECKS),
    (store_sharing, SHARED_CALL_STORE_CHECKS),
    (tree_suite, TREE_STORE_CHECKS),
    (tree_changes, TREE_STORE_CHECKS),
    (tree_sharing, SHARED_TREE_STORE_CHECKS),
]


@pytest.mark.parametrize(("module", "checks"), SUITES)
def test_every_check_is_in_its_list(
    module: ModuleType, checks: Sequence[Check | TreeCheck]
) -> None:
    written = [
        one
        for name, one in vars(module).items()
        if iscoroutinefunction(one) and one.__module__ == module.__name__ and name[0] != "_"
    ]
    assert [one for one in written if one not in checks] == []


@pytest.mark.parametrize("check", CALL_STORE_CHECKS, ids=name_of)
async def test_a_store_keeps_a_promise(check: Check, open_any: OpenStore) -> None:
    await check(open_any)


@pytest.mark.parametrize("check", SHARED_CALL_STORE_CHECKS, ids=name_of)
async def test_a_shared_store_keeps_a_promise(check: Check, open_shared: OpenStore) -> None:
    await check(open_shared)


@pytest.mark.parametrize("check", TREE_STORE_CHECKS, ids=name_of)
async def test_a_store_of_conversations_keeps_a_promise(
    check: TreeCheck, open_any_trees: OpenTreeStore
) -> None:
    await check(open_any_trees)


@pytest.mark.parametrize("check", SHARED_TREE_STORE_CHECKS, ids=name_of)
async def test_a_shared_store_of_conversations_keeps_a_promise(
    check: TreeCheck, open_shared_trees: OpenTreeStore
) -> None:
    await check(open_shared_trees)
