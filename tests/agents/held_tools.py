"""Stop a turn between the model's reply and the first tool that the reply calls."""

import asyncio

import pytest

from anabranch.agents._tool_batch import ToolBatch
from anabranch.tree import Node


def hold_first_batch(patch: pytest.MonkeyPatch) -> asyncio.Event:
    """Hold the tools of the next reply for ever; return an event that is set when they are about to
    start.
    """
    run, begins = ToolBatch.run, asyncio.Event()

    async def held_up(batch: ToolBatch) -> Node:
        patch.setattr(ToolBatch, "run", run)
        begins.set()
        return await asyncio.Event().wait() and await run(batch)

    patch.setattr(ToolBatch, "run", held_up)
    return begins
