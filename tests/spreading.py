"""Distributes the tests over pytest workers: by file, by docs page, or one by one for long files.

The last part to finish decides when a run ends. The tests of a long file are therefore distributed
one by one and start first. Tests of such a file must not depend on their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped] # it has no types

if TYPE_CHECKING:
    import pytest

PAGES = "docs/test_pages.py"
"""The tests of the pages' examples; examples of one page build on each other."""

LONG_FILES = (
    PAGES,
    "tests/engines/test_engines.py",
    "tests/laws/test_law_1_one_result_over_every_edge.py",
    "tests/stores/test_conformance.py",
    "tests/owners/test_routes.py",
    "tests/owners/test_served_tools.py",
    "tests/owners/test_agent_tools.py",
)
"""The test files that take longest in total, as the report of a run shows."""


def part_of(nodeid: str) -> str:
    """Return the part to which a test belongs."""
    file, _, test = nodeid.partition("::")
    if file == PAGES:
        return f"{file}::{test.partition('[')[2].partition(':')[0]}"
    return nodeid if file in LONG_FILES else file


def long_files_first(items: list[pytest.Item]) -> None:
    """Put the tests of the long files first; the other tests stay in their order."""
    place = {file: number for number, file in enumerate(LONG_FILES)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


class Spread(LoadFileScheduling):  # type: ignore[misc] # the same
    """pytest-xdist's distribution by files, with the parts of this module."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the part of a test; xdist's own method returns its file."""
        return part_of(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """Return the test that a dying worker ran, and give its other tests to other workers.

        xdist's own method gives the failed test to the next worker, which then dies as well. xdist
        also hands out parts without a test, and a worker that gets one waits for ever.
        """
        parts = self.assigned_work[node]
        left = (
            test for part in parts.values() for test, has_ended in part.items() if not has_ended
        )
        running: str | None = next(left, None)
        for name, part in list(parts.items()):
            if running in part:
                part[running] = True
            if all(part.values()):
                del parts[name]
        super().remove_node(node)
        return running

    def _reschedule(self, node: Any) -> None:
        """Give a worker more tests; xdist's own method fails for a worker that still collects its tests."""
        if node in self.registered_collections:
            super()._reschedule(node)
