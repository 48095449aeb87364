"""Servers of two code versions over one store: the server with the call's version continues the call."""

from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer

from anabranch import BranchContext, tool
from anabranch.tool import Tool
from tests.diary import DONE
from tests.durable.stores import Modelled
from tests.mcp.harness import MODERN, Answers, accept, connected, serving, text_of
from tests.sagas.harness import Number, accepted, call_saga, resume_saga, text_in

pytestmark = pytest.mark.usefixtures("nothing_done")
WAITS = "Version '1' of the code started the call"


def reserve() -> None:
    DONE.append("reserved")


@tool(name="book")
async def book_1(ctx: BranchContext) -> str:
    await ctx.step(reserve)
    return (await ctx.elicit(Number, "how many?", key="many")).action


@tool(name="book")
async def book_2(ctx: BranchContext) -> str:
    """Reserve by another step, and ask: the code of the second version."""
    await ctx.step(reserve, name="hold")
    return (await ctx.elicit(Number, "how many?", key="many")).action


def server(tool: Tool[Any], version: str, store: Modelled) -> MCPServer[Any]:
    return serving(tool, store=store, code_version=version)


async def call(client: Client, state: str | None = None) -> Any:
    answers: types.InputResponses | None = None if state is None else {"many": accept(n=1)}
    return await client.session.call_tool(
        "book", {}, input_responses=answers, request_state=state, allow_input_required=True
    )


async def test_a_client_sends_its_request_again_after_reaching_other_code() -> None:
    store, user = Modelled(), Answers(lambda _: accept(n=1))
    async with (
        connected(server(book_1, "1", store), MODERN, user) as old,
        connected(server(book_2, "2", store), MODERN, user) as new,
    ):
        asked = await call(old)
        refused = await call(new, asked.request_state)
        assert isinstance(refused, types.CallToolResult)
        assert refused.is_error
        assert WAITS in text_of(refused)
        assert DONE == ["reserved"]

        ended = await call(old, asked.request_state)
        assert (ended.structured_content, DONE) == ({"result": "accept"}, ["reserved"])


async def test_a_saga_is_resumed_by_its_own_code() -> None:
    store = Modelled()
    async with (
        connected(server(book_1, "1", store), MODERN, Answers()) as old,
        connected(server(book_2, "2", store), MODERN, Answers()) as new,
    ):
        token = (await call_saga(old, "book", {}))["sagaToken"]
        refused = await resume_saga(new, token, accepted("many", n=1))
        assert WAITS in text_in(refused)

        ended = await resume_saga(old, token, accepted("many", n=1))
        assert (text_in(ended), DONE) == ("accept", ["reserved"])


async def test_a_server_has_a_digest_as_its_version_where_calls_are_stored() -> None:
    store = Modelled()
    async with connected(serving(book_1, store=store), MODERN, Answers()) as client:
        await call_saga(client, "book", {})
    [record] = await store.calls(1)
    assert len(record.version) == 12
