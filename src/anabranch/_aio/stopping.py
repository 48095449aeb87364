"""The mark by which a server says that it stops, in the state of each request.

What would go on for ever, such as a stream of events, waits for it, too. A server that only waits for
its requests would have to cancel such a one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

STOPPING: Final = "anabranch.stopping"
"""The name, in the state of a server's lifespan, of the event that is set when it stops."""


def server_stops(scope: Mapping[str, Any]) -> asyncio.Event | None:
    """Return the event that is set when the server of a request stops; ``None`` if it has none."""
    state: Mapping[str, object] = scope.get("state") or {}
    found = state.get(STOPPING)
    return found if isinstance(found, asyncio.Event) else None
