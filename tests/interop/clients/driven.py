"""The script for ``driver.mjs``, and the events that the driver reports."""

from typing import Any, Final

MODERN: Final = "2026-07-28"
VERSIONS: Final = {"auto": MODERN, "legacy": "2025-11-25"}
"""What a client may ask for, and the version that it gets."""

Lines = list[dict[str, Any]]


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def events(lines: Lines, kind: str) -> list[Any]:
    return [line[kind] for line in lines if kind in line]
