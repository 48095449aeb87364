"""Warnings about a token budget in the results of tools."""

from typing import Any

from pydantic import TypeAdapter

from anabranch.agents import Outcome
from anabranch.agents._working_branch import warns
from anabranch.messages import Block, TextBlock, text_of
from anabranch.tree import Result


async def test_a_warning_is_known_by_its_mark_when_a_tool_repeats_its_words() -> None:
    written = TextBlock(text="paid\n(Of this branch's budget, all is used)")
    assert not warns(Result("n", "u", (written,)))
    warning = Outcome("paid").with_warning("(most is used)")
    stored = TypeAdapter(tuple[Block, ...]).dump_json(warning.blocks)
    read: Any = TypeAdapter(tuple[Block, ...]).validate_json(stored)
    assert warns(Result("n", "u", read))
    assert text_of(read) == "paid\n(most is used)"
