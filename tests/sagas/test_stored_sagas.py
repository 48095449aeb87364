"""Sagas of a server with a store: the server does not run a repeated turn again.

Source: design, "Effects run once"; the saga proposal leaves retries open.
"""

import json
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, ToolError, tool
from anabranch.mcp import create_server
from anabranch.tool import Tool
from tests.masking import with_any_id
from tests.mcp.harness import ERAS, KEY, Answers, connected, text_of
from tests.sagas.harness import accepted, call_saga, resume_saga, text_in


class Form(BaseModel):
    zeta: str
    alpha: int


A1 = accepted("book/elicit.1", zeta="z", alpha=1)
A2 = accepted("book/elicit.2", zeta="z", alpha=2)


def booking(effects: list[str], *, refuse: str = "") -> Tool[dict[str, int]]:
    @tool(name="book")
    async def body(ctx: BranchContext) -> dict[str, int]:
        """Ask twice, with an effect before and after each question."""
        await ctx.step(effects.append, "one", undo=lambda _: effects.append("undo one"))
        await ctx.elicit(Form, "First?")
        await ctx.step(effects.append, "two")
        answer = await ctx.elicit(Form, "Second?")
        await ctx.step(effects.append, "three")
        if refuse == "ToolError":
            raise ToolError("No seats are left.")
        if refuse:
            raise RuntimeError("a bug")
        return {"zeta": 1, "alpha": answer.content.alpha if isinstance(answer, Accepted) else 0}

    return body


def stored(store: Any, *tools: Tool[Any]) -> MCPServer[Any]:
    return create_server("stored", tools, keys=[KEY], store=store)


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def twice(client: Client, token: str, *steps: dict[str, Any]) -> dict[str, Any]:
    """Send the same turn twice, and check that both replies are equal byte for byte."""
    first = await resume_saga(client, token, *steps)
    again = await resume_saga(client, token, *steps)
    assert json.dumps(again) == json.dumps(first)
    return first


async def test_a_repeated_turn_gets_the_same_reply_byte_for_byte(era: str) -> None:
    """The replies have the same token and the same order of a form's fields."""
    effects: list[str] = []
    async with connected(stored("memory:", booking(effects)), era, Answers()) as client:
        one = await call_saga(client, "book", {})
        two = await twice(client, one["sagaToken"], A1)
        schema = two["steps"][0]["params"]["requestedSchema"]
        done = await twice(client, two["sagaToken"], A1, A2)
    assert list(schema["properties"]) == ["zeta", "alpha"]
    assert done["structuredContent"] == {"zeta": 1, "alpha": 2}
    assert effects == ["one", "two", "three"]


@pytest.mark.parametrize("refuse", ["ToolError", "RuntimeError"])
async def test_a_repeated_turn_gets_the_same_failure(
    era: str, refuse: str, caplog: pytest.LogCaptureFixture
) -> None:
    effects: list[str] = []
    server = stored("memory:", booking(effects, refuse=refuse))
    async with connected(server, era, Answers()) as client:
        one = await call_saga(client, "book", {})
        two = await resume_saga(client, one["sagaToken"], A1)
        failed = await twice(client, two["sagaToken"], A1, A2)
    assert failed["isError"] is True
    words = (
        "No seats are left." if refuse == "ToolError" else "Error executing tool book (error ID)"
    )
    assert with_any_id(text_in(failed)) == words
    if refuse == "RuntimeError":
        shown = text_in(failed).removeprefix("Error executing tool book ")  # the error's id
        assert f"tool 'book' raised an unexpected exception {shown}\n" in caplog.text
        assert "RuntimeError: a bug" in caplog.text
    assert effects == ["one", "two", "three", "undo one"]


async def test_a_repeated_turn_gets_the_same_protocol_error(era: str) -> None:
    @tool(name="raises")
    async def raises(ctx: BranchContext) -> None:
        """Ask, then raise an error of the protocol."""
        await ctx.elicit(Form, "First?")
        raise MCPError(-32042, "own error", {"a": 1})

    async with connected(stored("memory:", raises), era, Answers()) as client:
        first = await call_saga(client, "raises", {})
        errors = list[Any]()
        for _ in range(2):
            with pytest.raises(MCPError) as refused:
                await resume_saga(
                    client, first["sagaToken"], accepted("raises/elicit.1", zeta="z", alpha=1)
                )
            errors.append(refused.value.error.model_dump())
    assert errors[0] == errors[1]
    assert (errors[0]["code"], errors[0]["data"]) == (-32042, {"a": 1})


async def test_continue_call_continues_no_saga(era: str) -> None:
    """``continue_call`` only continues calls whose chain of rounds has ended."""
    lines: list[str] = []

    @tool(name="tells")
    async def tells(ctx: BranchContext) -> str:
        """Log the call's id, and ask."""
        lines.append(ctx.call_id)
        await ctx.elicit(Form, "First?")
        return "done"

    async with connected(stored("memory:", tells), era, Answers()) as client:
        first = await call_saga(client, "tells", {})
        refused = await client.call_tool("continue_call", {"call": lines[0]})
        assert "names no call that can continue" in text_of(refused)
        step = accepted("tells/elicit.1", zeta="z", alpha=1)
        assert text_in(await resume_saga(client, first["sagaToken"], step)) == "done"
