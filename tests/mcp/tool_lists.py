"""The list of a server's tools that a connection reads: its maximum, and how to wait for a new reading."""

import asyncio
from typing import Any

import pytest

from anabranch.mcp import _tool_link


def offer_at_most(number: int, patch: pytest.MonkeyPatch) -> None:
    """Limit connections to the first tools of a server."""
    patch.setattr(_tool_link, "MOST_TOOLS", number)


def next_reading(patch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return an event that is set when a connection has read a list again."""
    done, read = asyncio.Event(), _tool_link.ToolList.read

    async def reading(self: Any, client: Any) -> None:
        await read(self, client)
        done.set()

    patch.setattr(_tool_link.ToolList, "read", reading)
    return done
