"""The parts in which workers take the tests: a file, a page of the docs, or a single test of a long file.

The last part decides when a run ends. So the tests of a long file are spread over the workers, one by
one, and come first; nothing that they share may depend on their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped] # it has no types

if TYPE_CHECKING:
    import pytest

PAGES = "docs/test_pages.py"
"""Its tests are the examples of the pages; those of one page build on each other."""

LONG_FILES = (
    PAGES,
    "tests/engines/test_engines.py",
    "tests/laws/test_law_1_one_result_over_every_edge.py",
    "tests/stores/test_conformance.py",
    "tests/owners/test_routes.py",
    "tests/owners/test_served_tools.py",
    "tests/owners/test_agent_tools.py",
)
"""The files whose tests take most together, as the report of a run shows."""


def part_of(nodeid: str) -> str:
    """Return the part that a test is in."""
    file, _, test = nodeid.partition("::")
    if file == PAGES:
        return f"{file}::{test.partition('[')[2].partition(':')[0]}"
    return nodeid if file in LONG_FILES else file


def long_files_first(items: list[pytest.Item]) -> None:
    """Put the tests of the long files first; all others stay in their order."""
    place = {file: number for number, file in enumerate(LONG_FILES)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


class Spread(LoadFileScheduling):  # type: ignore[misc] # the same
    """The distribution of pytest-xdist by files, with the parts of this module."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the part that a test is in; xdist's own method returns its file."""
        return part_of(nodeid)

    def remove_node(self, node: Any) -> str | None:
        """Return the test that a worker ran as it died, and hand its other tests to other workers.

        xdist's own method has the next worker run that test again, which then dies as well, and hands out
        parts without a test, after which a worker waits for ever.
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
        """Give a worker more tests; xdist's own method fails for one that still collects them."""
        if node in self.registered_collections:
            super()._reschedule(node)
