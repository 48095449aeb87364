"""The rules of providers accept valid requests and refuse faulty ones; other tests rely on them."""

from typing import Any

import pytest

from tests.models.provider_rules import chat_faults, messages_faults, responses_faults

USE: dict[str, Any] = {"type": "tool_use", "id": "u1", "name": "look", "input": {}}
RESULT: dict[str, Any] = {"type": "tool_result", "tool_use_id": "u1", "content": "rain"}
HI: dict[str, Any] = {"role": "user", "content": "hi"}
CALL: dict[str, Any] = {
    "id": "c1",
    "type": "function",
    "function": {"name": "look", "arguments": "{}"},
}
CALLS: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
NO_CALLS: dict[str, Any] = {"tool_calls": []}
TOOL_MESSAGE: dict[str, Any] = {"role": "tool", "tool_call_id": "c1", "content": "rain"}
MADE: dict[str, Any] = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
MARK: dict[str, Any] = {"type": "ephemeral"}
WIDE: dict[str, Any] = {"type": "image", "source": {"data": "AAAAAAAAAAAAAAAAAAAAAAAAIyg="}}
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "c1", "output": "rain"}


def said(role: str, *content: dict[str, Any] | str) -> dict[str, Any]:
    blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in content]
    return {"role": role, "content": blocks}


def calls(**changes: Any) -> dict[str, Any]:
    function = {"name": "look", "arguments": "{}"} | changes
    return {"role": "assistant", "tool_calls": [CALL | {"function": function}]}


def schema_of(**changes: Any) -> dict[str, Any]:
    return {"name": "a", "input_schema": {"type": "object", "properties": {}} | changes}


def test_a_right_request_has_no_faults() -> None:
    two = USE | {"id": "u2"}
    messages = [
        HI,
        said("assistant", "hm", USE, two),
        said("user", RESULT, RESULT | {"tool_use_id": "u2"}, "and?"),
        said("assistant", "done"),
    ]
    body = {"max_tokens": 1, "system": "Be kind.", "messages": messages, "tools": [{"name": "a"}]}
    assert messages_faults(body) == []
    schema: dict[str, Any] = {"type": "object", "properties": {"cache_control": {}}}
    marked: dict[str, Any] = {
        "name": "a",
        "input_schema": schema,
        "cache_control": MARK | {"ttl": "1h"},
    }
    assert messages_faults(body | {"tools": [marked], "cache_control": MARK}) == []
    tools = [{"function": {"name": "look"}}]
    system = {"role": "system", "content": "Be kind."}
    assert chat_faults({"messages": [system, HI, CALLS, TOOL_MESSAGE, HI], "tools": tools}) == []
    assert responses_faults({"input": [HI, MADE, OUTPUT, HI], "tools": [{"name": "look"}]}) == []


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([], "at least one message"),
        ([said("assistant", "a")], "first message"),
        ([HI, HI], "alternate"),
        ([said("system", "a")], "no role"),
        ([said("user")], "non-empty content"),
        ([said("user", " \n")], "non-whitespace"),
        ([HI, said("assistant", "a "), HI, said("assistant", "a ")], "trailing whitespace"),
        ([HI, said("assistant", USE)], "without tool_result blocks"),
        ([HI, said("assistant", USE), HI], "without tool_result blocks"),
        ([HI, said("assistant", "a"), said("user", RESULT)], "unexpected tool_use_id"),
        ([HI, said("assistant", USE), said("user", RESULT, RESULT)], "multiple tool_result"),
        ([HI, said("assistant", USE), said("user", "a", RESULT)], "come first"),
        ([HI, said("assistant", USE, USE), said("user", RESULT)], "must be unique"),
        ([said("user", USE)], "only be in assistant"),
        ([HI, said("assistant", RESULT)], "only be in user"),
        ([HI, said("assistant", {"type": "image"})], "only be in user"),
        ([said("user", WIDE)], "messages.0.content.0.image"),
        ([said("user", {"type": "audio"})], "no block"),
        ([HI, said("assistant", USE | {"id": "a.b"})], "tool_use.id"),
        ([HI, said("assistant", USE | {"name": ""})], "tool_use.name"),
        ([HI, said("assistant", USE | {"input": "{}"})], "must be an object"),
        ([HI, said("assistant", USE), said("user", RESULT | {"content": [USE]})], "cannot hold"),
        (
            [HI, said("assistant", USE), said("user", RESULT | {"content": " "})],
            "tool_result: text",
        ),
    ],
)
def test_the_messages_api_refuses_these_messages(messages: list[Any], fault: str) -> None:
    assert any(fault in each for each in messages_faults({"max_tokens": 1, "messages": messages}))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"system": " "}, "system"),
        ({"system": [{"type": "text", "text": ""}]}, "system"),
        ({"tools": [{"name": "a.b"}]}, "not the name of a tool"),
        ({"tools": [{"name": "a"}, {"name": "a"}]}, "must be unique"),
        ({"tools": [{"name": name, "cache_control": MARK} for name in "abcde"]}, "maximum of 4"),
        ({"tools": [schema_of(type="string")]}, "must have type 'object'"),
        ({"tools": [schema_of(oneOf=[{}])]}, "must not have {'oneOf'}"),
        ({"tools": [schema_of(properties={"$top": {}})]}, "property keys"),
        ({"tools": [schema_of(items={"type": "array"})]}, "missing items"),
        ({"tools": [schema_of(required=True)]}, "2020-12"),
        ({"cache_control": {"type": "forever"}}, "no cache_control"),
        ({"cache_control": MARK | {"ttl": "1d"}}, "no cache_control"),
    ],
)
def test_the_messages_api_refuses_these_other_parts(changes: Any, fault: str) -> None:
    faults = messages_faults({"max_tokens": 1, "messages": [HI]} | changes)
    assert any(fault in each for each in faults)


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([HI, CALLS], "did not have response"),
        ([HI, CALLS, HI, TOOL_MESSAGE], "did not have response"),
        ([HI, TOOL_MESSAGE], "must be a response"),
        ([HI, CALLS, TOOL_MESSAGE, TOOL_MESSAGE], "must be a response"),
        ([HI, CALLS, TOOL_MESSAGE, CALLS, TOOL_MESSAGE], "must be unique"),
        ([HI, HI], "alternate"),
        ([HI, CALLS, TOOL_MESSAGE, HI, HI], "alternate"),
        ([CALLS, TOOL_MESSAGE], "first message"),
        ([said("user", " ")], "is empty"),
        ([{"role": "user", "content": ""}], "is empty"),
        ([{"role": "user"}], "must not be null"),
        ([{"role": "robot", "content": "a"}], "no role"),
        ([HI, CALLS | NO_CALLS], "not empty"),
        ([HI, CALLS | {"role": "user"}], "belong to the assistant"),
        ([HI, calls(name="a b")], "not the name"),
        ([HI, calls(arguments={})], "must be a string"),
        ([HI, calls(arguments="{")], "must be JSON"),
        ([HI, calls(arguments='{"a": NaN}')], "must be JSON"),
        ([HI, calls(arguments="[]")], "JSON object"),
        ([HI, CALLS | {"tool_calls": [CALL | {"id": "c" * 65}]}], "1 to 64 characters"),
        ([HI, CALLS | {"tool_calls": [CALL | {"type": "custom"}]}], "no kind of call"),
    ],
)
def test_chat_completions_refuse_these_requests(messages: list[Any], fault: str) -> None:
    assert any(fault in each for each in chat_faults({"messages": messages}))


@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ([], "input is empty"),
        ([HI, MADE], "no tool output"),
        ([HI, MADE, HI, OUTPUT], "no tool output"),
        ([HI, OUTPUT], "no tool call"),
        ([HI, MADE, MADE, OUTPUT], "must be unique"),
        ([HI, MADE, OUTPUT, OUTPUT], "one output"),
        ([HI, MADE | {"arguments": "1"}, OUTPUT], "JSON object"),
        ([{"role": "user", "content": ""}], "is empty"),
        ([{"role": "tool", "content": "a"}], "no role"),
        ([HI, {"type": "thought"}], "no item"),
    ],
)
def test_responses_refuse_these_requests(items: list[Any], fault: str) -> None:
    assert any(fault in each for each in responses_faults({"input": items}))
