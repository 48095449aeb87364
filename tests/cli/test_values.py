from typing import Any

import pytest
from mcp_types import CallToolResult, ImageContent, TextContent, Tool

from anabranch._terminal import FailedError
from anabranch.cli._calling import value_of

PLAIN = Tool(name="t", input_schema={"type": "object"})


def wrapping(title: str, **more: Any) -> Tool:
    schema: dict[str, Any] = {
        "title": title,
        "type": "object",
        "properties": {"result": {}},
        **more,
    }
    return Tool(name="t", input_schema={"type": "object"}, output_schema=schema)


def text(*words: str) -> list[Any]:
    return [TextContent(type="text", text=word) for word in words]


def test_structured_content_goes_before_text() -> None:
    result = CallToolResult(content=text("ignored"), structured_content={"a": 1})
    assert value_of(result, PLAIN) == {"a": 1}


@pytest.mark.parametrize(
    ("tool", "value"),
    [
        (wrapping("tOutput"), 5),
        (wrapping("anything", **{"x-fastmcp-wrap-result": True}), 5),
        (wrapping("Result"), {"result": 5}),
        (wrapping("SearchOutput"), {"result": 5}),
        (PLAIN, {"result": 5}),
    ],
)
def test_only_values_that_a_server_had_to_wrap_are_unwrapped(tool: Tool, value: object) -> None:
    assert value_of(CallToolResult(content=[], structured_content={"result": 5}), tool) == value


def test_a_modern_server_may_return_any_json() -> None:
    assert value_of(CallToolResult(content=[], structured_content=[1]), wrapping("tOutput")) == [1]


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (text("hello"), "hello"),
        (text('{"a": 1}'), {"a": 1}),
        (text("one", "two"), "one\ntwo"),
        ([], None),
    ],
)
def test_without_structured_content_the_text_is_the_value(content: Any, value: object) -> None:
    assert value_of(CallToolResult(content=content), PLAIN) == value


def test_a_call_that_is_not_done_has_no_value() -> None:
    details = {"tool": "continue_call", "call": "call_1", "questions": []}
    content: Any = text("t is not done.")
    stopped = CallToolResult(content=content, structured_content={"unfinished": details})
    with pytest.raises(FailedError, match="is not done"):
        value_of(stopped, PLAIN)


def test_content_that_is_no_text_is_given_block_by_block() -> None:
    image = ImageContent(type="image", data="aGk=", mime_type="image/png")
    assert value_of(CallToolResult(content=[*text("see"), image]), PLAIN) == [
        {"type": "text", "text": "see"},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    ]


@pytest.mark.parametrize(
    ("content", "message"), [(text("No seats."), "No seats."), ([], "The tool t failed without")]
)
def test_an_error_is_raised_with_its_words(content: Any, message: str) -> None:
    with pytest.raises(FailedError, match=message):
        value_of(CallToolResult(content=content, is_error=True), PLAIN)
