"""``continue_call`` gives what the tool gives that goes on."""

import json
from typing import Any

import pytest
from fastmcp import FastMCP
from pydantic import BaseModel

from anabranch import BranchContext, tool
from anabranch.mcp import install_fastmcp
from anabranch.tool import Tool
from tests.mcp.harness import MODERN, Answers, accept, connected, serving, text_of


class Ok(BaseModel):
    ok: bool


class Counted(BaseModel):
    answers: int


def patient(annotation: Any, value: Any, questions: int = 11) -> Tool[Any]:
    async def body(ctx: BranchContext) -> Any:
        """Ask questions, one after the other."""
        for number in range(questions):
            await ctx.elicit(Ok, f"Question {number}?")
        return value

    body.__annotations__["return"] = annotation
    return tool(name="patient")(body)


VALUES: dict[str, tuple[Any, Any, list[Any]]] = {
    "a text": (str, '"done"', ["done"]),
    "a list": (list[int], [1, 2], [1, 2]),  # the SDK makes a block of each
    "a dict": (dict[str, int], {"a": 1}, [{"a": 1}]),
    "a model": (Counted, Counted(answers=11), [{"answers": 11}]),
}


@pytest.mark.parametrize("what", VALUES)
async def test_a_call_that_is_continued_gives_its_value_whatever_that_is(what: str) -> None:
    annotation, value, blocks = VALUES[what]
    server = serving(patient(annotation, value), store="memory:")
    async with connected(server, MODERN, Answers(lambda _: accept(ok=True))) as client:
        stopped = text_of(await client.call_tool("patient"))
        line = stopped.partition("call='")[2].partition("'")[0]
        result = await client.call_tool("continue_call", {"call": line})
    assert not result.is_error
    assert [json.loads(getattr(block, "text", "")) for block in result.content] == blocks


@pytest.mark.parametrize("questions", [9, 10])
async def test_ten_questions_are_what_every_client_answers(questions: int) -> None:
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


async def test_in_a_namespace_the_tools_are_named_as_the_client_sees_them() -> None:
    inner: FastMCP[Any] = FastMCP("inner")
    install_fastmcp(inner, patient(str, "done", 21), store="memory:")
    outer: FastMCP[Any] = FastMCP("outer")
    outer.mount(inner, namespace="in")
    below = outer._mcp_server  # pyright: ignore[reportPrivateUsage]
    async with connected(below, MODERN, Answers(lambda _: accept(ok=True))) as client:
        text = text_of(await client.call_tool("in_patient"))
        for _ in range(2):
            assert text.startswith("in_patient is not done")
            assert "Call the tool in_continue_call with" in text
            line = text.partition("call='")[2].partition("'")[0]
            text = text_of(await client.call_tool("in_continue_call", {"call": line}))
    assert text == "done"
