"""The options of a server that have a fixed set of values, and defaults; imports nothing."""

from __future__ import annotations

from typing import Literal, TypeAlias

Ask: TypeAlias = Literal["client", "fallback"]
"""The clients that are asked: those that declare the capability, or all."""

SamplerMode: TypeAlias = Literal["own", "prefer-client"]
"""The use of the server's own model: always, or if the client lacks or refuses sampling."""

TTL = 600.0
"""Seconds that a user has for one round of questions."""

GRACE = 10.0
"""Seconds for undoing the calls of a stopping server."""

HEARTBEAT = 15.0
"""Seconds between two heartbeats, by default."""
