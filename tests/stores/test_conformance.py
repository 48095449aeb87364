"""Every kind of store passes the published suite."""

from collections.abc import Sequence
from inspect import iscoroutinefunction
from types import ModuleType

import pytest

from anabranch.testing.suites import (
    CALL_STORE_CHECKS,
    SHARED_CALL_STORE_CHECKS,
    SHARED_TREE_STORE_CHECKS,
    TREE_STORE_CHECKS,
    CallStoreCheck,
    OpenCallStore,
    OpenTreeStore,
    TreeStoreCheck,
)
from anabranch.testing.suites import _call_round_checks as call_rounds
from anabranch.testing.suites import _call_store_checks as call_store
from anabranch.testing.suites import _shared_call_store_checks as call_sharing
from anabranch.testing.suites import _shared_tree_store_checks as tree_sharing
from anabranch.testing.suites import _tree_change_checks as tree_changes
from anabranch.testing.suites import _tree_reading_checks as tree_reading
from anabranch.testing.suites import _tree_store_checks as tree_store


def name_of(check: CallStoreCheck | TreeStoreCheck) -> str:
    return getattr(check, "__name__", repr(check))


SUITES: Sequence[tuple[ModuleType, Sequence[CallStoreCheck | TreeStoreCheck]]] = [
    (call_store, CALL_STORE_CHECKS),
    (call_rounds, CALL_STORE_CHECKS),
    (call_sharing, SHARED_CALL_STORE_CHECKS),
    (tree_store, TREE_STORE_CHECKS),
    (tree_changes, TREE_STORE_CHECKS),
    (tree_reading, TREE_STORE_CHECKS),
    (tree_sharing, SHARED_TREE_STORE_CHECKS),
]


@pytest.mark.parametrize(("module", "checks"), SUITES)
def test_every_check_is_in_its_list(
    module: ModuleType, checks: Sequence[CallStoreCheck | TreeStoreCheck]
) -> None:
    written = [
        one
        for name, one in vars(module).items()
        if iscoroutinefunction(one) and one.__module__ == module.__name__ and name[0] != "_"
    ]
    assert [one for one in written if one not in checks] == []


@pytest.mark.parametrize("check", CALL_STORE_CHECKS, ids=name_of)
async def test_a_store_of_calls_does_what_the_port_promises(
    check: CallStoreCheck, open_any: OpenCallStore
) -> None:
    await check(open_any)


@pytest.mark.parametrize("check", SHARED_CALL_STORE_CHECKS, ids=name_of)
async def test_a_shared_store_of_calls_does_what_the_port_promises(
    check: CallStoreCheck, open_shared: OpenCallStore
) -> None:
    await check(open_shared)


@pytest.mark.parametrize("check", TREE_STORE_CHECKS, ids=name_of)
async def test_a_store_of_conversations_does_what_the_port_promises(
    check: TreeStoreCheck, open_any_trees: OpenTreeStore
) -> None:
    await check(open_any_trees)


@pytest.mark.parametrize("check", SHARED_TREE_STORE_CHECKS, ids=name_of)
async def test_a_shared_store_of_conversations_does_what_the_port_promises(
    check: TreeStoreCheck, open_shared_trees: OpenTreeStore
) -> None:
    await check(open_shared_trees)
