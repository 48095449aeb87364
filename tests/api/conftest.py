"""Fixtures for tests of the author's API: each runs a call with and without replay."""

import pytest


@pytest.fixture(params=[True, False], ids=["replayed", "hot"])
def replay(request: pytest.FixtureRequest) -> bool:
    """Return the value for ``run_tool(replay=…)``. Each test runs with both values."""
    return bool(request.param)
