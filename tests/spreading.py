"""The order of the tests, and the parts in which workers take them: a file, a page, or the tests of one function.

A worker takes the next part when it has almost nothing left to do. So what lasts longest comes first, and a
file that would hold one worker long after the others have ended is taken in parts; nothing that its tests share
may depend on their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped] # pyright: ignore[reportMissingTypeStubs] - it has no types

if TYPE_CHECKING:
    import pytest

__all__ = ["Spread", "longest_first"]

PAGES = "docs/test_pages.py"
"""Its tests are the examples of the pages; those of one page build on each other."""

LONGEST = (
    "tests/owners/test_routes.py",
    PAGES,
    "tests/owners/test_served_tools.py",
    "tests/owners/test_agent_tools.py",
    "tests/engines/test_engines.py",
    "tests/engines/test_waiting.py",
    "tests/faults/test_chaos.py",
    "tests/laws/test_law_1_one_result_over_every_edge.py",
    "tests/chat/test_web_deferred.py",
    "tests/chat/test_web_combinations.py",
    "tests/chat/test_web_dies_anywhere.py",
    "tests/chat/test_web_waits_die_anywhere.py",
    "tests/chat/test_web_inbox_dies_anywhere.py",
    "tests/chat/test_web_accounts.py",
    "tests/chat/test_web_owners.py",
    "tests/attacks/test_whatever_a_body_raises.py",
    "tests/attacks/test_foreign_schemas.py",
    "tests/chat/test_web_killed.py",
    "tests/chat/test_web_processes.py",
    "tests/chat/test_worker_processes.py",
    "tests/stores/test_conformance.py",
    "tests/engine/test_schedules.py",
)
"""The files that last longest, from the first on; a new one is found with ``--durations``."""

BY_FUNCTION = frozenset(
    {
        "tests/attacks/test_foreign_schemas.py",
        "tests/attacks/test_whatever_a_body_raises.py",
        "tests/chat/test_web_accounts.py",
        "tests/chat/test_web_combinations.py",
        "tests/chat/test_web_deferred.py",
        "tests/chat/test_web_dies_anywhere.py",
        "tests/chat/test_web_owners.py",
        "tests/faults/test_chaos.py",
        "tests/laws/test_law_1_one_result_over_every_edge.py",
        "tests/stores/test_conformance.py",
    }
)
"""Files of which any worker may run any function."""

SINGLY = frozenset(
    {
        "tests/engines/test_engines.py",
        "tests/engines/test_waiting.py",
        "tests/owners/test_agent_tools.py",
        "tests/owners/test_routes.py",
        "tests/owners/test_served_tools.py",
    }
)
"""Files of which any worker may run any test."""


def part_of(nodeid: str) -> str:
    """Return the part that a test is in."""
    file, _, test = nodeid.partition("::")
    if file == PAGES:
        return f"{file}::{test.partition('[')[2].partition(':')[0]}"
    if file in SINGLY:
        return nodeid
    return nodeid.partition("[")[0] if file in BY_FUNCTION else file


def longest_first(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first; all others stay in their order."""
    place = {file: number for number, file in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


class Spread(LoadFileScheduling):  # type: ignore[misc] # the same
    """The distribution of pytest-xdist by files, with the parts of this module."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the part that a test is in; xdist's own method returns its file."""
        return part_of(nodeid)
