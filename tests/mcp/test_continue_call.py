"""``continue_call`` gives what the tool gives that goes on."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from anabranch import BranchContext, tool
from anabranch.tool import Tool
from tests.mcp.harness import MODERN, Answers, accept, connected, serving, text_of


class Ok(BaseModel):
    ok: bool


class Counted(BaseModel):
    answers: int


def patient(annotation: Any, value: Any) -> Tool[Any]:
    async def body(ctx: BranchContext) -> Any:
        """Ask eleven questions, one after the other."""
        for number in range(11):
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
