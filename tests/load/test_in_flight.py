"""Many simultaneous calls in one process: each gets its result, and none fails."""

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from anabranch import BranchContext, tool
from tests.load.calls import GO
from tests.mcp.harness import HANDSHAKE, MODERN, Answers, accept, connected, serving, text_of
from tests.randomised import LONG

AT_ONCE = 1000 if LONG else 50
STORED = 200 if LONG else 20
"""With a store, each call holds a lease and renews it repeatedly."""


class Gate:
    """Opens when all calls have arrived."""

    def __init__(self, number: int) -> None:
        self._missing = number
        self._open = anyio.Event()

    async def pass_together(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._open.set()
        await self._open.wait()


@pytest.mark.parametrize(
    ("era", "number", "stored"),
    [(HANDSHAKE, AT_ONCE, False), (MODERN, AT_ONCE, False), (MODERN, STORED, True)],
)
async def test_many_simultaneous_calls_succeed(
    era: str, number: int, stored: bool, tmp_path: Path
) -> None:
    gate = Gate(number)

    async def meet(number: int) -> int:
        await gate.pass_together()
        return number

    @tool(elicits=[GO])
    async def crowd(ctx: BranchContext, number: int) -> str:
        """Wait for all other calls, and ask."""
        met = await ctx.step(meet, number)
        answer = await ctx.elicit(GO, f"On from {met}?")
        return f"{met} {answer.action}"

    options: dict[str, Any] = {}
    if stored:
        options["store"] = f"sqlite:///{tmp_path}/calls.db?synchronous=normal"
    answers = Answers(elicit=lambda _: accept(on=True))
    results: dict[int, types.CallToolResult] = {}
    async with connected(serving(crowd, **options), era, answers) as client:

        async def call(mine: int) -> None:
            result = results[mine] = await client.call_tool("crowd", {"number": mine})
            # Fail early: the other calls would wait for this one.
            assert not result.is_error, text_of(result)

        async with anyio.create_task_group() as group:
            for mine in range(number):
                group.start_soon(call, mine)
    found = {mine: text_of(result) for mine, result in results.items()}
    assert found == {mine: f"{mine} accept" for mine in range(number)}
