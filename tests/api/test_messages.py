"""Message types: both spellings of fields, text in place of blocks, and immutability."""

import pickle

import pytest
from pydantic import ValidationError

from anabranch import Message, ToolSpec, Usage, assistant, user
from anabranch.messages import (
    AudioBlock,
    Exchange,
    ImageBlock,
    SampleReply,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    ToolUseBlock,
    to_messages,
    unchecked,
)

BLOCKS = (
    TextBlock(text="a"),
    ImageBlock(data="eA==", mime_type="image/png"),
    AudioBlock(data="eA==", mime_type="audio/wav"),
    ToolUseBlock(id="u1", name="t", input={"n": 1}),
    ToolResultBlock(tool_use_id="u1", content=(TextBlock(text="b"),), is_error=True),
)


def test_a_message_survives_both_of_its_spellings() -> None:
    """Python code uses snake_case, the wire uses camelCase, and the models read both."""
    message = user(BLOCKS)
    assert Message.model_validate(message.model_dump()) == message
    assert Message.model_validate(message.wire()) == message
    assert message.wire()["content"][1]["mimeType"] == "image/png"
    assert message.wire()["content"][4]["toolUseId"] == "u1"


@pytest.mark.parametrize(
    "content",
    ["hi", {"type": "text", "text": "hi"}, TextBlock(text="hi"), [{"type": "text", "text": "hi"}]],
    ids=["text", "block as json", "block", "list"],
)
def test_a_text_or_one_block_may_stand_for_a_list_of_blocks(content: object) -> None:
    """Providers and MCP allow all three."""
    assert Message.model_validate({"role": "user", "content": content}) == user("hi")
    assert SampleReply.model_validate({"content": content}).text == "hi"


def test_the_text_of_a_message_is_that_of_its_text_blocks() -> None:
    message = assistant([TextBlock(text="a"), BLOCKS[3], TextBlock(text="b")])
    assert message.text == "ab"
    assert (user("x").role, message.role) == ("user", "assistant")


def test_the_tool_calls_of_a_reply_are_its_tool_uses_in_order() -> None:
    reply = SampleReply(content=BLOCKS)
    assert reply.tool_calls == (ToolCall(id="u1", name="t", arguments={"n": 1}),)
    assert (reply.role, reply.text, reply.usage) == ("assistant", "a", None)


def test_a_tool_result_may_be_given_as_a_text() -> None:
    """Most tool results are one text."""
    given = {"tool_use_id": "u1", "content": "b"}
    assert ToolResultBlock.model_validate(given).content == (TextBlock(text="b"),)


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "system", "content": "x"},
        {"role": "user"},
        {"role": "user", "content": {"type": "dance"}},
    ],
    ids=str,
)
def test_a_value_that_is_no_message_is_refused(wrong: dict[str, str | dict[str, str]]) -> None:
    """A conversation is checked when the author passes it in."""
    with pytest.raises(ValidationError):
        to_messages([wrong])


def test_messages_come_from_messages_and_from_their_json() -> None:
    assert to_messages([user("a"), {"role": "assistant", "content": "b"}]) == (
        user("a"),
        assistant("b"),
    )


def test_usage_adds_up() -> None:
    assert Usage(input_tokens=3, output_tokens=4).total_tokens == 7
    with pytest.raises(ValidationError):
        Usage(input_tokens=-1)


def test_absent_fields_are_left_out_on_the_wire() -> None:
    """MCP clients validate messages, and may refuse a null."""
    spec = ToolSpec(name="t", input_schema={"type": "object"})
    assert spec.wire() == {"name": "t", "description": "", "inputSchema": {"type": "object"}}
    assert "usage" not in SampleReply(content=()).wire()


def test_an_exchange_is_a_tuple_of_messages_whose_tool_use_can_be_filled() -> None:
    exchange = Exchange((user("q"), assistant([BLOCKS[3], BLOCKS[0]])))
    filled = exchange.with_arguments({"n": 2})
    assert isinstance(filled, Exchange)
    assert filled[0] == exchange[0]
    assert filled[1].content == (ToolUseBlock(id="u1", name="t", input={"n": 2}), BLOCKS[0])


def test_an_unchecked_message_equals_a_checked_message() -> None:
    """The equality would fail for a class with private attributes or with fields left out."""
    plain = Message(role="user", content=BLOCKS)
    made = unchecked(Message, role="user", content=BLOCKS)
    assert made == plain
    assert made.model_fields_set == plain.model_fields_set
    assert made.wire() == plain.wire()
    assert pickle.loads(pickle.dumps(made)) == plain  # noqa: S301
    assert made.model_copy(update={"role": "assistant"}).role == "assistant"
    assert to_messages([made])[0] is made
    with pytest.raises(ValidationError, match="frozen"):
        setattr(made, "role", "assistant")  # noqa: B010  # a type checker knows it is frozen
