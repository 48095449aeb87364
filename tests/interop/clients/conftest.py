"""What the interop tests share: servers that run for all of them, and the ways to reach them."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.interop.clients.driven import VERSIONS
from tests.interop.processes import CLIENTS, EXAMPLES, SERVE, serving

TARGETS = [EXAMPLES / "pick_card.py", CLIENTS / "served.py"]


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


@pytest.fixture(params=["http", "stdio"])
def server(request: pytest.FixtureRequest) -> Mapping[str, Any]:
    """What the client connects to: a running server, or a command that it starts itself."""
    if request.param == "http":
        return {"url": request.getfixturevalue("url")}
    command, *arguments = [*SERVE, *map(str, TARGETS)]
    return {"command": command, "args": arguments}


@pytest.fixture(params=VERSIONS)
def era(request: pytest.FixtureRequest) -> str:
    """What the client asks for."""
    return str(request.param)
