"""The names of services, objects and wakes at Restate."""

from __future__ import annotations

from collections.abc import Collection

from anabranch._durable.engine import Wake
from anabranch.engines._names import encoded

ADVANCE = "advance"
"""The handler of every service here."""


def service_of(prefix: str, tool: str, version: str) -> str:
    """Return the name of the service that has the wakes of one version of a tool."""
    return f"{prefix}_{encoded(tool)}_{encoded(version)}"


def tick_of(prefix: str) -> str:
    """Return the name of the service that has the turns of periodic jobs."""
    return f"{prefix}.every"


def name_of(wake: Wake) -> str:
    """Return the name of a wake among those of its call."""
    return f"{encoded(wake.turn)}_{wake.not_before!r}"


def listed(names: Collection[str]) -> str:
    """Return names as a list of SQL; none of them has anything to escape."""
    return "(" + ", ".join(f"'{name}'" for name in names) + ")"
