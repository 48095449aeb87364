"""Every kind of store passes the suite of its port."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from anabranch.stores import (
    open_branch_store,
    open_memory_store,
    open_run_events,
    open_store,
    open_tree_store,
)
from tests.stores.conftest import new_url
from tests.suites import branch_store_checks as branches
from tests.suites import call_model_checks as call_model
from tests.suites import call_store_checks as calls
from tests.suites import memory_store_checks as memories
from tests.suites import run_event_checks as run_events
from tests.suites import run_turn_checks as run_turns
from tests.suites import shared_call_store_checks as shared_calls
from tests.suites import shared_run_event_checks as shared_run_events
from tests.suites import shared_tree_store_checks as shared_trees
from tests.suites import tree_store_checks as trees

Check = Callable[[Callable[[], Any]], Awaitable[None]]
"""A check of one promise; it receives a function that opens the store."""

EACH: dict[Callable[[str], Any], Sequence[Check]] = {
    open_store: calls.CALL_STORE_CHECKS,
    open_tree_store: trees.TREE_STORE_CHECKS,
    open_run_events: run_turns.RUN_EVENT_CHECKS,
    open_memory_store: memories.MEMORY_STORE_CHECKS,
    open_branch_store: branches.BRANCH_STORE_CHECKS,
}
"""The checks that open a new store once, by the function that opens the store."""

SHARED: dict[Callable[[str], Any], Sequence[Check]] = {
    open_store: shared_calls.SHARED_CALL_STORE_CHECKS,
    open_tree_store: shared_trees.SHARED_TREE_STORE_CHECKS,
    open_run_events: shared_run_events.SHARED_RUN_EVENT_CHECKS,
    open_branch_store: branches.SHARED_BRANCH_STORE_CHECKS,
}
"""The checks that open a store several times over the same data."""

SUITES = [
    branches, calls, call_model, memories, run_events, run_turns, shared_calls, shared_run_events,
    shared_trees, trees,
]  # fmt: skip
HELPERS = {"missed", "read_from"}


@pytest.mark.parametrize("module", SUITES)
def test_every_check_is_in_its_list(module: ModuleType) -> None:
    checks = {check for lists in (EACH, SHARED) for each in lists.values() for check in each}
    written = [
        one
        for name, one in vars(module).items()
        if iscoroutinefunction(one)
        and one.__module__ == module.__name__
        and name[0] != "_"
        and name not in HELPERS
    ]
    assert [one for one in written if one not in checks] == []


def cases(checks: dict[Callable[[str], Any], Sequence[Check]]) -> list[Any]:
    """Return each check with the function that opens its store."""
    return [
        pytest.param(opens, check, id=f"{opens.__name__}-{getattr(check, '__name__', check)}")
        for opens, several in checks.items()
        for check in several
    ]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "memory"])
@pytest.mark.parametrize(("opens", "check"), cases(EACH))
async def test_a_store_keeps_the_promises_of_its_port(
    opens: Callable[[str], Any],
    check: Check,
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    await check(partial(opens, new_url(kind, request, tmp_path)))


@pytest.mark.parametrize(("opens", "check"), cases(SHARED))
async def test_a_shared_store_keeps_the_promises_of_its_port(
    opens: Callable[[str], Any], check: Check, url: str
) -> None:
    await check(partial(opens, url))
