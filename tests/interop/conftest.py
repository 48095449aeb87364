"""What the interop tests share: servers that run for all of them."""

from collections.abc import Iterator

import pytest

from tests.interop.processes import EXAMPLES, HERE, serving

TARGETS = [EXAMPLES / "pick_card.py", HERE / "served.py"]


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """The game and the tools of ``served.py``, over HTTP."""
    with serving(*TARGETS) as address:
        yield address


@pytest.fixture(scope="session")
def other_url() -> Iterator[str]:
    """The same in another process, which has the same keys."""
    with serving(*TARGETS) as address:
        yield address
