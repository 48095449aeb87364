"""``continue_call`` returns the same result as the tool that it continues."""

import inspect
import json
from typing import Any

import mcp_types as types
import pytest
from fastmcp import FastMCP
from pydantic import BaseModel

from anabranch import BranchContext, tool
from anabranch.mcp import install_fastmcp
from anabranch.tool import Tool
from tests.durable.stores import Modelled
from tests.mcp.asking import Ok
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


class Counted(BaseModel):
    answers: int


def patient(annotation: Any, value: Any, questions: int = 11) -> Tool[Any]:
    async def body(ctx: BranchContext) -> Any:
        """Ask questions in turn."""
        for number in range(questions):
            await ctx.elicit(Ok, f"Question {number}?")
        return value

    body.__annotations__["return"] = annotation
    return tool(name="patient")(body)


def handle_in(stopped: types.CallToolResult) -> str:
    return text_of(stopped).partition("call='")[2].partition("'")[0]


VALUES: dict[str, tuple[Any, Any, list[Any]]] = {
    "a text": (str, '"done"', ["done"]),
    "a list": (list[int], [1, 2], [[1, 2]]),
    "a dict": (dict[str, int], {"a": 1}, [{"a": 1}]),
    "a model": (Counted, Counted(answers=11), [{"answers": 11}]),
}


@pytest.mark.parametrize("what", VALUES)
async def test_continue_call_returns_every_kind_of_value(what: str) -> None:
    annotation, value, blocks = VALUES[what]
    server = serving(patient(annotation, value), store="memory:")
    async with connected(server, MODERN, Answers(lambda _: accept(ok=True))) as client:
        stopped = await client.call_tool("patient")
        result = await client.call_tool("continue_call", {"call": handle_in(stopped)})
    assert not result.is_error
    assert [json.loads(getattr(block, "text", "")) for block in result.content] == blocks


NO_SCHEMA: list[Any] = [Any, inspect.Signature.empty]


@pytest.mark.parametrize("annotation", [str, *NO_SCHEMA], ids=str)
@pytest.mark.parametrize("host", ["sdk", "fastmcp"])
async def test_a_call_that_must_be_continued_differs_by_structure_from_any_value(
    host: str, annotation: Any
) -> None:
    body = patient(annotation, "done")
    if annotation is inspect.Signature.empty:
        body = patient_without_annotation
    server: Any = serving(body, store="memory:")
    if host == "fastmcp":
        mine = FastMCP[Any]("mine")
        install_fastmcp(mine, body, store="memory:")
        server = mine._mcp_server
    async with connected(server, MODERN, Answers(lambda _: accept(ok=True))) as client:
        await client.list_tools()
        stopped = await client.call_tool(body.name)
        assert not stopped.is_error
        details: Any = stopped.structured_content
        assert [*details] == ["unfinished"]
        assert text_of(stopped).startswith(f"{body.name} is not done")
        assert details["unfinished"]["questions"] == []
        again = details["unfinished"]
        result = await client.call_tool(again["tool"], {"call": again["call"]})
    assert text_of(result) == "done"


@tool
async def patient_without_annotation(ctx: BranchContext):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Ask questions in turn."""
    for number in range(11):
        await ctx.elicit(Ok, f"Question {number}?")
    return "done"


async def test_an_open_call_is_an_error_where_its_schema_has_no_place_for_a_handle() -> None:
    server = serving(patient(Counted, Counted(answers=11)), store="memory:")
    async with connected(server, MODERN, Answers(lambda _: accept(ok=True))) as client:
        await client.list_tools()
        stopped = await client.call_tool("patient")
    assert stopped.is_error
    assert stopped.structured_content is None


async def test_a_call_that_stops_again_is_no_error_where_continue_call_has_no_schema() -> None:
    """A host repeats a failed call, and would then send a handle that has been used."""
    server = serving(patient(Counted, Counted(answers=21), 21), store="memory:")
    async with connected(server, MODERN, Answers(lambda _: accept(ok=True))) as client:
        first = await client.call_tool("patient")
        again = await client.call_tool("continue_call", {"call": handle_in(first)})
        assert not again.is_error
        going_on: Any = again.structured_content
        assert going_on["unfinished"]["tool"] == "continue_call"
        last = await client.call_tool("continue_call", {"call": handle_in(again)})
    assert (first.is_error, json.loads(text_of(last))) == (True, {"answers": 21})


@pytest.mark.parametrize("questions", [9, 10])
async def test_every_client_answers_ten_questions(questions: int) -> None:
    server = serving(patient(str, "done", questions), store="memory:")
    async with connected(server, MODERN, Answers(lambda _: accept(ok=True))) as client:
        assert text_of(await client.call_tool("patient")) == "done"


async def test_a_chain_that_is_continued_is_as_long() -> None:
    server = serving(patient(str, "done", 21), store="memory:")
    answers = Answers(lambda _: accept(ok=True))
    async with connected(server, MODERN, answers) as client:
        text, requests = text_of(await client.call_tool("patient")), 1
        while text != "done":
            line = text.partition("call='")[2].partition("'")[0]
            text = text_of(await client.call_tool("continue_call", {"call": line}))
            requests += 1
    assert (requests, len(answers.asked)) == (3, 21)


async def test_a_call_is_continued_once_and_in_any_era() -> None:
    server = serving(patient(str, "done"), store=Modelled())
    answers = Answers(lambda _: accept(ok=True))
    async with connected(server, MODERN, answers) as client:
        handle = handle_in(await client.call_tool("patient"))
    async with connected(server, HANDSHAKE, answers) as client:
        result = await client.call_tool("continue_call", {"call": handle})
        again = await client.call_tool("continue_call", {"call": handle})
    assert text_of(result) == "done"
    assert again.is_error
    assert "its questions are answered" in text_of(again)


NO_HANDLE = "This handle names no call that can continue"


async def test_a_call_id_is_no_handle() -> None:
    """The call's id appears in steps and in the addresses of pages, so it must not open the call."""
    store = Modelled()
    server = serving(patient(str, "done"), store=store)
    async with connected(server, MODERN, Answers(lambda _: accept(ok=True))) as client:
        await call_once(client, "patient", {})
        (waiting,) = store.model.expired(1e12, 9)
        refused = await client.call_tool("continue_call", {"call": waiting.call_id})
    assert refused.is_error
    assert NO_HANDLE in text_of(refused)


@pytest.mark.parametrize("options", [{"store": Modelled(), "continue_calls": False}, {}])
async def test_a_server_has_no_continue_call_without_a_store_or_when_told(
    options: dict[str, Any],
) -> None:
    async with connected(serving(patient(str, "done"), **options), MODERN, Answers()) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["patient"]
