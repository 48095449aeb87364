"""JSON in a line of the chat that is nested too deeply."""

from typing import Any

import pytest

from anabranch import BranchContext, tool
from anabranch._schemas import split_pairs
from anabranch.agents import CalledTool
from anabranch.chat import SessionError, read_answer
from anabranch.chat._terminal.typed_input import read_arguments
from anabranch.errors import ToolError
from anabranch.messages import ElicitRequest


@tool
async def take(ctx: BranchContext, things: list[Any]) -> str:
    return "taken"


FORM = ElicitRequest(
    message="Which?", requested_schema={"type": "object", "properties": {"n": {"type": "integer"}}}
)


@pytest.mark.parametrize("depth", [101, 20_000])
def test_arguments_and_answers_are_refused_when_they_are_nested_too_deeply(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    with pytest.raises(ToolError, match="nested too deeply"):
        read_arguments(CalledTool(take), f'{{"things": {deep}}}')
    with pytest.raises(ValueError, match="nested too deeply"):
        list(split_pairs(f"things={deep}"))
    with pytest.raises(SessionError, match="nested too deeply"):
        read_answer(FORM, f'{{"n": {deep}}}')
