"""What the tests of the author's API share: each way in which a call can be run."""

import pytest


@pytest.fixture(params=[True, False], ids=["replayed", "hot"])
def replay(request: pytest.FixtureRequest) -> bool:
    """The value for ``run_tool(replay=…)``: what holds must hold both ways."""
    return bool(request.param)
