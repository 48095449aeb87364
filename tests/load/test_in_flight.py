"""A thousand calls at the same time on one process: each gets its own result, and none fails."""

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from anabranch import BranchContext, tool
from tests.load.calls import GO
from tests.mcp.harness import HANDSHAKE, MODERN, Answers, accept, connected, serving, text_of

AT_ONCE = 1000


class Gate:
    """Opens when everybody is there."""

    def __init__(self, number: int) -> None:
        self._missing = number
        self._open = anyio.Event()

    async def pass_together(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._open.set()
        await self._open.wait()


@pytest.mark.parametrize(("era", "kept"), [(HANDSHAKE, False), (MODERN, False), (MODERN, True)])
async def test_a_thousand_calls_are_in_flight(era: str, kept: bool, tmp_path: Path) -> None:
    gate = Gate(AT_ONCE)

    async def meet(number: int) -> int:
        await gate.pass_together()
        return number

    @tool(elicits=[GO])
    async def crowd(ctx: BranchContext, number: int) -> str:
        """Wait for all the others, and ask."""
        met = await ctx.step(meet, number)
        answer = await ctx.elicit(GO, f"On from {met}?")
        return f"{met} {answer.action}"

    options: dict[str, Any] = {}
    if kept:
        options["store"] = f"sqlite:///{tmp_path}/calls.db?synchronous=normal"
    answers = Answers(elicit=lambda _: accept(on=True))
    results: dict[int, types.CallToolResult] = {}
    with anyio.fail_after(120):
        async with connected(serving(crowd, **options), era, answers) as client:

            async def call(number: int) -> None:
                results[number] = await client.call_tool("crowd", {"number": number})

            async with anyio.create_task_group() as group:
                for number in range(AT_ONCE):
                    group.start_soon(call, number)
    assert {number: text_of(result) for number, result in results.items()} == {
        number: f"{number} accept" for number in range(AT_ONCE)
    }
