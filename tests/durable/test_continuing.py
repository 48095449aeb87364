"""More questions than a client has rounds for: ``continue_call`` picks the call up again."""

import re
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from anabranch import Accepted, BranchContext, tool
from tests.durable.stores import Modelled
from tests.mcp.harness import (
    HANDSHAKE,
    MODERN,
    Answers,
    accept,
    call_once,
    connected,
    serving,
    text_of,
)

HANDLE = re.compile(r"call='([^']+)'")


class Number(BaseModel):
    n: int


class Sum(BaseModel):
    total: int


done: list[int] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


async def _ask(ctx: BranchContext, questions: int) -> int:
    total = 0
    for number in range(questions):
        answer = await ctx.elicit(Number, f"number {number}?")
        assert isinstance(answer, Accepted)
        await ctx.step(done.append, number)
        total += answer.content.n
    return total


@tool
async def add_up(ctx: BranchContext, questions: int) -> str:
    """Ask for numbers and add them up."""
    return f"sum {await _ask(ctx, questions)}"


@tool
async def add_up_strictly(ctx: BranchContext, questions: int) -> Sum:
    """The same, as an object."""
    return Sum(total=await _ask(ctx, questions))


def server(**options: Any) -> MCPServer[Any]:
    return serving(add_up, add_up_strictly, store=Modelled(), **options)


def person() -> Answers:
    return Answers(lambda _: accept(n=1))


def handle_in(result: types.CallToolResult) -> str:
    found = HANDLE.search(text_of(result))
    assert found is not None
    return found[1]


async def continue_until_done(client: Client, result: types.CallToolResult) -> tuple[Any, int]:
    """Go on as a model would, until no handle is named; the result, and how often it took."""
    times = 0
    while (found := HANDLE.search(text_of(result))) is not None:
        times += 1
        result = await client.call_tool("continue_call", {"call": found[1]})
    return result, times


@pytest.mark.parametrize("name", ["add_up", "add_up_strictly"])
async def test_twenty_five_questions_are_answered_by_an_ordinary_client(name: str) -> None:
    answers = person()
    async with connected(server(), MODERN, answers) as client:
        first = await client.call_tool(name, {"questions": 25})
        assert first.is_error is (name == "add_up_strictly")
        result, times = await continue_until_done(client, first)
    assert not result.is_error
    assert "25" in text_of(result)
    assert times == 2
    assert done == list(range(25))
    asked = [params.message for params in answers.asked]
    assert len(asked) == 25
    assert len(set(asked)) == 25


async def test_a_call_that_had_to_stop_is_continued_in_the_handshake_era() -> None:
    serves = server()
    async with connected(serves, MODERN, person()) as client:
        first = await client.call_tool("add_up", {"questions": 25})
    async with connected(serves, HANDSHAKE, person()) as client:
        result = await client.call_tool("continue_call", {"call": handle_in(first)})
    assert text_of(result) == "sum 25"
    assert done == list(range(25))


async def test_a_calls_name_is_no_handle() -> None:
    """Steps and pages that it sends people to know that name."""
    store = Modelled()
    async with connected(serving(add_up, store=store), MODERN, person()) as client:
        await call_once(client, "add_up", {"questions": 2})
        (waiting,) = store.model.expired(1e12, 9)
        refused = await client.call_tool("continue_call", {"call": waiting.call_id})
    assert refused.is_error
    assert "This handle names no call that can continue" in text_of(refused)


async def test_a_call_that_cannot_continue_is_refused_in_one_sentence() -> None:
    for era in (MODERN, HANDSHAKE):
        async with connected(server(), era, person()) as client:
            unknown = await client.call_tool("continue_call", {"call": "call_unknown"})
            assert unknown.is_error
            assert "This handle names no call that can continue" in text_of(unknown)


async def test_a_call_that_has_ended_is_not_continued() -> None:
    serves = server()
    async with connected(serves, MODERN, person()) as client:
        first = await client.call_tool("add_up", {"questions": 11})
        handle = handle_in(first)
        result, _ = await continue_until_done(client, first)
        assert text_of(result) == "sum 11"
        again = await client.call_tool("continue_call", {"call": handle})
    assert again.is_error
    assert "its questions are answered" in text_of(again)


async def test_continuing_can_be_left_out() -> None:
    async with connected(server(continue_calls=False), MODERN, person()) as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == ["add_up", "add_up_strictly"]
    async with connected(serving(add_up), MODERN, person()) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add_up"]
