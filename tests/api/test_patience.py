"""``patience=``: how long work outside of steps may delay an open question."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp import Client
from mcp import types as sdk
from pydantic import BaseModel

from anabranch import BranchContext, HandoffTool, run_tool, tool
from anabranch.mcp import create_server
from anabranch.testing import MockClient


class Name(BaseModel):
    name: str


HOUR = 3600.0


def asking_beside(seconds: float) -> Callable[[BranchContext], Awaitable[str]]:
    """Return a function that asks while other work runs; the work takes ``seconds`` only the first
    time.
    """
    left = [seconds]

    async def beside_work(ctx: BranchContext) -> str:
        async def late() -> None:
            await asyncio.sleep(left.pop() if left else 0)
            await ctx.elicit(Name, "Second?")

        await asyncio.gather(ctx.elicit(Name, "First?"), late())
        return "done"

    return beside_work


class InPhases(HandoffTool):
    """Ask while other work runs."""

    patience = 0.02

    def __init__(self) -> None:
        self.ask = asking_beside(HOUR)

    async def before(self) -> str:
        return "ready"

    async def client(self, handoff: str, ctx: BranchContext) -> str:
        return await self.ask(ctx)

    async def after(self, handoff: str, picked: str) -> str:
        return picked


def user() -> MockClient:
    return MockClient(elicits=[Name(name="Ada"), Name(name="Bob")])


def cut_off(caplog: pytest.LogCaptureFixture) -> bool:
    return "the round was cut off" in caplog.text


@pytest.mark.parametrize(
    ("of_the_tool", "of_the_edge", "is_cut_off"),
    [
        (None, None, False),
        (0.02, None, True),
        (None, 0.02, True),
        (0.02, 60, True),
        (60, 0.02, True),
    ],
)
async def test_the_tightest_patience_holds(
    of_the_tool: float | None,
    of_the_edge: float | None,
    is_cut_off: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    asking = tool(patience=of_the_tool)(asking_beside(HOUR if is_cut_off else 0.05))
    assert await run_tool(asking, {}, user(), patience=of_the_edge) == "done"
    assert cut_off(caplog) is is_cut_off


async def test_a_handoff_tool_sets_patience_in_its_class(caplog: pytest.LogCaptureFixture) -> None:
    assert await run_tool(InPhases(), {}, user()) == "done"
    assert cut_off(caplog)


async def test_a_server_has_a_patience_for_all_its_tools(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(context: Any, params: sdk.ElicitRequestParams) -> sdk.ElicitResult:
        return sdk.ElicitResult(action="accept", content={"name": "Ada"})

    server = create_server("s", [tool(asking_beside(HOUR))], patience=0.02)
    async with Client(server, mode="2026-07-28", elicitation_callback=answer) as client:
        result = await client.call_tool("beside_work", {})
    assert result.is_error is False
    assert cut_off(caplog)


async def test_patience_cuts_nothing_off_on_a_hot_edge(caplog: pytest.LogCaptureFixture) -> None:
    asking = tool(patience=0.02)(asking_beside(0.05))
    assert await run_tool(asking, {}, user(), replay=False) == "done"
    assert not cut_off(caplog)


@pytest.mark.parametrize("patience", [0, -1, math.inf, math.nan])
async def test_a_patience_is_a_positive_number_of_seconds(patience: float) -> None:
    class Impatient(InPhases):
        """Ask while other work runs."""

    Impatient.patience = patience
    with pytest.raises(ValueError, match="patience must be a positive number"):
        tool(patience=patience)(asking_beside(0))
    with pytest.raises(ValueError, match="patience must be a positive number"):
        Impatient()
    with pytest.raises(ValueError, match="patience must be a positive number"):
        create_server("s", [tool(asking_beside(0))], patience=patience)
    with pytest.raises(ValueError, match="patience must be a positive number"):
        await run_tool(tool(asking_beside(0)), {}, user(), patience=patience)
