"""Fixtures of the client tests: shared servers, and the ways to reach them."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.interop.clients.driven import VERSIONS
from tests.interop.processes import CLIENTS, EXAMPLES, SERVE, serving

TARGETS = [EXAMPLES / "pick_card.py", CLIENTS / "served.py"]


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Return the URL of the game and the tools of ``served.py``."""
    with serving(*TARGETS) as address:
        yield address


@pytest.fixture(scope="session")
def other_url() -> Iterator[str]:
    """Return the URL of the same tools in another process with the same keys."""
    with serving(*TARGETS) as address:
        yield address


@pytest.fixture(params=["http", "stdio"])
def server(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """Return the client's target: a running server, or a command that the client starts."""
    if request.param == "http":
        return {"url": request.getfixturevalue("url")}
    command, *arguments = [*SERVE, *map(str, TARGETS)]
    return {"command": command, "args": arguments}


@pytest.fixture(params=VERSIONS)
def era(request: pytest.FixtureRequest) -> str:
    """Return the era that the client requests."""
    return str(request.param)
