"""``patience=``: how long work outside of steps may hold back an open question."""

import asyncio
import math
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


async def beside_work(ctx: BranchContext) -> str:
    """Ask at once, and again after some work."""

    async def late() -> None:
        await asyncio.sleep(0.3)
        await ctx.elicit(Name, "Second?")

    await asyncio.gather(ctx.elicit(Name, "First?"), late())
    return "done"


class InPhases(HandoffTool):
    """Ask beside work."""

    patience = 0.02

    async def before(self) -> str:
        return "ready"

    async def client(self, handoff: str, ctx: BranchContext) -> str:
        return await beside_work(ctx)

    async def after(self, handoff: str, picked: str) -> str:
        return picked


def person() -> MockClient:
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
    asking = tool(patience=of_the_tool)(beside_work)
    assert await run_tool(asking, {}, person(), patience=of_the_edge) == "done"
    assert cut_off(caplog) is is_cut_off


async def test_a_handoff_tool_sets_its_patience_in_the_class(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await run_tool(InPhases(), {}, person()) == "done"
    assert cut_off(caplog)


async def test_a_server_has_a_patience_for_all_its_tools(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(context: Any, params: sdk.ElicitRequestParams) -> sdk.ElicitResult:
        return sdk.ElicitResult(action="accept", content={"name": "Ada"})

    server = create_server("s", [tool(beside_work)], patience=0.02)
    async with Client(server, mode="2026-07-28", elicitation_callback=answer) as client:
        result = await client.call_tool("beside_work", {})
    assert result.is_error is False
    assert cut_off(caplog)


async def test_where_the_function_stays_alive_nothing_is_cut_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asking = tool(patience=0.02)(beside_work)
    assert await run_tool(asking, {}, person(), replay=False) == "done"
    assert not cut_off(caplog)


@pytest.mark.parametrize("patience", [0, -1, math.inf, math.nan])
async def test_a_patience_is_a_positive_number_of_seconds(patience: float) -> None:
    class Impatient(InPhases):
        """Ask beside work."""

    Impatient.patience = patience
    with pytest.raises(ValueError, match="patience must be a positive number"):
        tool(patience=patience)(beside_work)
    with pytest.raises(ValueError, match="patience must be a positive number"):
        Impatient()
    with pytest.raises(ValueError, match="patience must be a positive number"):
        create_server("s", [tool(beside_work)], patience=patience)
    with pytest.raises(ValueError, match="patience must be a positive number"):
        await run_tool(tool(beside_work), {}, person(), patience=patience)
