"""Every kind of store passes the published suite."""

from collections.abc import Sequence
from inspect import iscoroutinefunction
from types import ModuleType
from typing import TypeAlias

import pytest

from tests.suites import call_model_checks as call_model
from tests.suites import call_store_checks as call_store
from tests.suites import memory_store_checks as memory_store
from tests.suites import run_event_checks as run_events
from tests.suites import run_turn_checks as run_turns
from tests.suites import shared_call_store_checks as call_sharing
from tests.suites import shared_run_event_checks as event_sharing
from tests.suites import shared_tree_store_checks as tree_sharing
from tests.suites import tree_store_checks as tree_store
from tests.suites.call_samples import CallStoreCheck, OpenCallStore
from tests.suites.call_store_checks import CALL_STORE_CHECKS
from tests.suites.memory_store_checks import MEMORY_STORE_CHECKS, MemoryStoreCheck, OpenMemoryStore
from tests.suites.run_event_checks import OpenRunEvents, RunEventCheck
from tests.suites.run_turn_checks import RUN_EVENT_CHECKS
from tests.suites.shared_call_store_checks import SHARED_CALL_STORE_CHECKS
from tests.suites.shared_run_event_checks import SHARED_RUN_EVENT_CHECKS
from tests.suites.shared_tree_store_checks import SHARED_TREE_STORE_CHECKS
from tests.suites.tree_samples import OpenTreeStore, TreeStoreCheck
from tests.suites.tree_store_checks import TREE_STORE_CHECKS

Check: TypeAlias = CallStoreCheck | MemoryStoreCheck | TreeStoreCheck | RunEventCheck


def name_of(check: Check) -> str:
    return getattr(check, "__name__", repr(check))


SUITES: Sequence[tuple[ModuleType, Sequence[Check]]] = [
    (call_store, CALL_STORE_CHECKS),
    (call_model, CALL_STORE_CHECKS),
    (call_sharing, SHARED_CALL_STORE_CHECKS),
    (tree_store, TREE_STORE_CHECKS),
    (tree_sharing, SHARED_TREE_STORE_CHECKS),
    (memory_store, MEMORY_STORE_CHECKS),
    (run_events, RUN_EVENT_CHECKS),
    (run_turns, RUN_EVENT_CHECKS),
    (event_sharing, SHARED_RUN_EVENT_CHECKS),
]


HELPERS = {"missed", "read_from"}


@pytest.mark.parametrize(("module", "checks"), SUITES)
def test_every_check_is_in_its_list(module: ModuleType, checks: Sequence[Check]) -> None:
    written = [
        one
        for name, one in vars(module).items()
        if iscoroutinefunction(one)
        and one.__module__ == module.__name__
        and name[0] != "_"
        and name not in HELPERS
    ]
    assert [one for one in written if one not in checks] == []


@pytest.mark.parametrize("check", CALL_STORE_CHECKS, ids=name_of)
async def test_a_store_of_calls_keeps_the_promises_of_the_port(
    check: CallStoreCheck, open_any: OpenCallStore
) -> None:
    await check(open_any)


@pytest.mark.parametrize("check", SHARED_CALL_STORE_CHECKS, ids=name_of)
async def test_a_shared_store_of_calls_keeps_the_promises_of_the_port(
    check: CallStoreCheck, open_shared: OpenCallStore
) -> None:
    await check(open_shared)


@pytest.mark.parametrize("check", TREE_STORE_CHECKS, ids=name_of)
async def test_a_store_of_conversations_keeps_the_promises_of_the_port(
    check: TreeStoreCheck, open_any_trees: OpenTreeStore
) -> None:
    await check(open_any_trees)


@pytest.mark.parametrize("check", SHARED_TREE_STORE_CHECKS, ids=name_of)
async def test_a_shared_store_of_conversations_keeps_the_promises_of_the_port(
    check: TreeStoreCheck, open_shared_trees: OpenTreeStore
) -> None:
    await check(open_shared_trees)


@pytest.mark.parametrize("check", RUN_EVENT_CHECKS, ids=name_of)
async def test_a_store_of_run_events_keeps_the_promises_of_the_port(
    check: RunEventCheck, open_any_events: OpenRunEvents
) -> None:
    await check(open_any_events)


@pytest.mark.parametrize("check", SHARED_RUN_EVENT_CHECKS, ids=name_of)
async def test_a_shared_store_of_run_events_keeps_the_promises_of_the_port(
    check: RunEventCheck, open_shared_events: OpenRunEvents
) -> None:
    await check(open_shared_events)


@pytest.mark.parametrize("check", MEMORY_STORE_CHECKS, ids=name_of)
async def test_a_store_of_memories_keeps_the_promises_of_the_port(
    check: MemoryStoreCheck, open_any_memories: OpenMemoryStore
) -> None:
    await check(open_any_memories)
