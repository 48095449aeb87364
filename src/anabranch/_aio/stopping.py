"""The event that a stopping server sets, found in the state of each request.

An endless response, such as a stream of events, waits for this event. A server that only waits for
its requests would have to cancel such a response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

STOPPING: Final = "anabranch.stopping"
"""The key of the event in the state of a server's lifespan."""


def server_stops(scope: Mapping[str, Any]) -> asyncio.Event | None:
    """Return the event that the server of a request sets when it stops; ``None`` if it sets none."""
    state: Mapping[str, object] = scope.get("state") or {}
    found = state.get(STOPPING)
    return found if isinstance(found, asyncio.Event) else None
