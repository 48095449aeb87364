"""A memo by identity computes a value once for each object, and drops the value with its object."""

import gc
import sys
from collections import Counter
from types import FrameType

import pytest

from anabranch import BranchContext, Message, tool
from anabranch._asking import sampling, tokens
from anabranch._asking.conversation import IdentityMemo
from anabranch.messages import SampleReply, ToolUseBlock, user
from anabranch.testing import MockClient, run_tool


def text_of_message(message: Message) -> str:
    return message.text


def test_a_value_is_computed_once_for_each_object_even_among_equals() -> None:
    computed: list[Message] = []

    def length(message: Message) -> int:
        computed.append(message)
        return len(message.text)

    memo = IdentityMemo(length)
    one, equal = user("four"), user("four")
    assert memo([one, equal, one]) == [4, 4, 4]
    assert len(computed) == 2


def test_a_value_is_dropped_with_its_object() -> None:
    memo = IdentityMemo(text_of_message)
    for _ in range(50):
        memo([user("gone")])
    gc.collect()
    assert len(memo) == 0


def test_a_new_object_with_a_reused_id_gets_a_new_value() -> None:
    memo = IdentityMemo(text_of_message)
    for number in range(
        1000
    ):  # CPython gives the id of a freed object to the next object of its size
        assert memo([user(str(number))]) == [str(number)]


@tool
async def look(ctx: BranchContext, number: int) -> str:
    return f"seen {number}"


@tool
async def talk(ctx: BranchContext) -> str:
    return (await ctx.converse("Go.", tools=[look], max_rounds=100)).text


@pytest.mark.parametrize("laps", [10, 40])
async def test_each_message_of_a_conversation_is_estimated_and_pinned_once(laps: int) -> None:
    """A conversation of n requests then costs n estimates instead of n²."""
    uses = [
        ToolUseBlock(id=f"use_{lap}", name="look", input={"number": lap}) for lap in range(laps)
    ]
    replies = [SampleReply(content=(use,), stop_reason="toolUse") for use in uses]
    computed: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename in (sampling.__file__, tokens.__file__):
            computed[frame.f_code.co_name] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        client = MockClient(samples=[*replies, "Done."])
        assert await run_tool(talk, {}, client, replay=False) == "Done."
    finally:
        sys.setprofile(before)
    # Estimated: the prompt; for each lap the model's message and the results; and each reply.
    messages = 1 + 2 * laps
    assert computed["_pin_message"] == computed["_estimate_message"] == messages
