"""The rules of providers for requests, written down from their documentation.

Each function takes a request body in its wire form, and returns the faults for which the provider
would refuse it, in the provider's order. An empty result means that the request is valid. Sources:
Anthropic's pages on the Messages API and on handling tool calls, OpenAI's reference of chat
completions and of responses, and the error texts of both. If a provider is more lenient than law 6
(it joins messages of one role), this module states the law.
"""

import base64
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]

from tests.models.provider_formats.answers import signed

PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
LONGEST_ID = 64  # OpenAI's maximum for the id of a call
WIDEST = 8000  # in pixels
MARKS = 4  # Anthropic's maximum number of cache marks in a request
MIXED = {"text", "image", "document", "thinking", "tool_use", "tool_result"}

Body = Mapping[str, Any]


def _listed(faults: Callable[[Body], Iterator[str]]) -> Callable[[Body], list[str]]:
    return lambda body: list(faults(body))


@_listed
def messages_faults(body: Body) -> Iterator[str]:
    """Yield the faults for which Anthropic's Messages API refuses a request."""
    messages: Sequence[Body] = body["messages"]
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        yield "max_tokens must be a positive integer"
    yield from _system_faults(body.get("system"))
    yield from _cache_faults(list(_marks(body)))
    yield from _tool_faults(body.get("tools", ()), "input_schema")
    yield from _role_faults([message["role"] for message in messages])
    uses = [
        block["id"]
        for message in messages
        for block in _blocks(message)
        if block["type"] == "tool_use"
    ]
    yield from (f"tool_use ids must be unique: {each}" for each in _repeated(uses))
    before: Body = {"role": "none", "content": []}
    for number, message in enumerate(messages):
        last = number == len(messages) - 1
        yield from (f"messages.{number}: {fault}" for fault in _message_faults(message, last=last))
        yield from (f"messages.{number}: {fault}" for fault in _pairing_faults(before, message))
        yield from _image_faults(f"messages.{number}", message)
        before = message
    yield from (f"at the end: {fault}" for fault in _pairing_faults(before, {"content": []}))


def _system_faults(system: str | Sequence[Body] | None) -> Iterator[str]:
    if system is None:
        return
    texts = [system] if isinstance(system, str) else [block["text"] for block in system]
    if not all(text.strip() for text in texts):
        yield "system: text content blocks must contain non-whitespace text"


def _marks(body: object) -> Iterator[Body]:
    """Yield the cache marks of a request: at its top level, or in any block."""
    if isinstance(body, Mapping):
        found = cast("Body", body)
        if "cache_control" in found:
            yield found["cache_control"]
        for key, value in found.items():
            if key not in {"input", "input_schema"}:
                yield from _marks(value)
    elif isinstance(body, list):
        for each in cast("Sequence[object]", body):
            yield from _marks(each)


def _cache_faults(marks: Sequence[Body]) -> Iterator[str]:
    if len(marks) > MARKS:
        yield f"a maximum of {MARKS} blocks with cache_control may be provided: {len(marks)}"
    for mark in marks:
        if mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in {"5m", "1h"}:
            yield f"no cache_control: {mark}"


def _tool_faults(tools: Sequence[Body], schema: str) -> Iterator[str]:
    names = [tool["name"] for tool in tools]
    for number, tool in enumerate(tools):
        if schema in tool:
            yield from (f"tools.{number}.{schema}: {each}" for each in _schema_faults(tool[schema]))
    yield from (f"tool names must be unique: {name}" for name in _repeated(names))
    yield from (f"not the name of a tool: {name!r}" for name in names if not NAME.fullmatch(name))


def _schema_faults(schema: Body) -> Iterator[str]:
    """Yield the faults of a tool's schema for which Anthropic or OpenAI refuse it."""
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        yield "schema must have type 'object', and properties"
    if found := {"oneOf", "anyOf", "allOf", "enum", "not"} & schema.keys():
        yield f"schema must not have {found} at the top level"
    for name in schema.get("properties", ()):
        if not PROPERTY.fullmatch(name):
            yield f"property keys should match the pattern: {name!r}"
    for part in _parts(schema):
        if part.get("type") == "array" and "items" not in part:
            yield "array schema missing items"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        yield f"schema must match JSON Schema draft 2020-12: {error.message}"


def _parts(value: object) -> Iterator[Body]:
    if isinstance(value, Mapping):
        yield cast("Body", value)
    inner: Iterable[object] = (
        (
            cast("Body", value).values()
            if isinstance(value, Mapping)
            else cast("list[object]", value)
        )
        if isinstance(value, Mapping | list)
        else ()
    )
    for each in inner:
        yield from _parts(each)


def _role_faults(roles: Sequence[str]) -> Iterator[str]:
    if not roles:
        yield "at least one message is required"
    elif roles[0] != "user":
        yield "the first message must be the user's"
    for number, (one, other) in enumerate(pairwise(roles), 1):
        if one == other:
            yield f"messages.{number}: roles must alternate, two of {one!r}"
    yield from (f"no role: {role!r}" for role in roles if role not in {"user", "assistant"})


def _message_faults(message: Body, *, last: bool) -> Iterator[str]:
    blocks = _blocks(message)
    if not blocks:
        yield "all messages must have non-empty content"
    for block in blocks:
        yield from _block_faults(block, message["role"])
    kinds = [block["type"] == "tool_result" for block in blocks]
    if kinds != sorted(kinds, reverse=True):
        yield "tool_result blocks must come first"
    if last and message["role"] == "assistant" and blocks and blocks[-1]["type"] == "text":
        text: str = blocks[-1]["text"]
        if text != text.rstrip():
            yield "final assistant content cannot end with trailing whitespace"


def _block_faults(block: Body, role: str) -> Iterator[str]:
    kind: str = block["type"]
    if kind not in MIXED:
        yield f"no block: {kind!r}"
    if kind == "text" and not block["text"].strip():
        yield "text content blocks must contain non-whitespace text"
    if kind in {"tool_result", "image", "document"} and role != "user":
        yield f"{kind} blocks can only be in user messages"
    if kind == "thinking" and (role, block["signature"]) != (
        "assistant",
        signed(block["thinking"]),
    ):
        yield "Invalid `signature` in `thinking` block"
    if kind == "tool_use":
        yield from _use_faults(block, role)
    if kind == "tool_result":
        for part in _blocks(block):
            if part["type"] not in {"text", "image", "document"}:
                yield f"tool_result cannot hold {part['type']}"
            yield from (f"tool_result: {fault}" for fault in _block_faults(part, "user"))


def _image_faults(where: str, holder: Body) -> Iterator[str]:
    for at, block in enumerate(_blocks(holder)):
        place = f"{where}.content.{at}"
        if block["type"] == "tool_result":
            yield from _image_faults(f"{place}.tool_result", block)
        elif block["type"] == "image" and is_too_wide(block.get("source", {}).get("data", "")):
            yield f"{place}.image.source.base64.data: at least one of the dimensions exceeds 8000"


def is_too_wide(png: str) -> bool:
    """Return whether a PNG is wider than Anthropic accepts."""
    return int.from_bytes(base64.b64decode(png)[16:20], "big") > WIDEST


def _use_faults(block: Body, role: str) -> Iterator[str]:
    if role != "assistant":
        yield "tool_use blocks can only be in assistant messages"
    if not ANTHROPIC_ID.fullmatch(block["id"]):
        yield f"tool_use.id should match the pattern: {block['id']!r}"
    if not NAME.fullmatch(block["name"]):
        yield f"tool_use.name should match the pattern: {block['name']!r}"
    if not isinstance(block["input"], dict):
        yield "tool_use.input must be an object"


def _pairing_faults(before: Body, message: Body) -> Iterator[str]:
    """Check that each tool use has exactly one result in the next message, and each result a tool use."""
    uses = [block["id"] for block in _blocks(before) if block["type"] == "tool_use"]
    results = [b["tool_use_id"] for b in _blocks(message) if b["type"] == "tool_result"]
    yield from (
        f"tool_use ids were found without tool_result blocks immediately after: {each}"
        for each in uses
        if each not in results
    )
    yield from (
        f"unexpected tool_use_id found in tool_result blocks: {each}"
        for each in results
        if each not in uses
    )
    yield from (f"multiple tool_result blocks with id: {each}" for each in _repeated(results))


def _blocks(message: Body) -> Sequence[Body]:
    content: str | Sequence[Body] = message.get("content", ())
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


@_listed
def chat_faults(body: Body) -> Iterator[str]:
    """Yield the faults for which OpenAI's chat completions refuse a request."""
    messages: Sequence[Body] = body["messages"]
    yield from _wide_faults(messages, "messages")
    yield from _tool_faults([tool["function"] for tool in body.get("tools", ())], "parameters")
    waiting: list[str] = []
    for number, message in enumerate(messages):
        where, role = f"messages[{number}]", message["role"]
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"{where}: 'tool' must be a response to a preceding message with 'tool_calls'"
            else:
                waiting.remove(message["tool_call_id"])
        elif waiting:
            yield f"{where}: tool_call_ids did not have response messages: {waiting}"
            waiting = []
        yield from (f"{where}: {fault}" for fault in _chat_content_faults(message))
        calls: Sequence[Body] = message.get("tool_calls") or ()
        for call in calls:
            yield from (f"{where}: {fault}" for fault in _call_faults(call["id"], call["function"]))
            if call["type"] != "function":
                yield f"{where}: no kind of call: {call['type']!r}"
        waiting += [call["id"] for call in calls]
    if waiting:
        yield f"at the end: tool_call_ids did not have response messages: {waiting}"
    ids = [c["id"] for message in messages for c in message.get("tool_calls") or ()]
    yield from (f"ids of calls must be unique: {each}" for each in _repeated(ids))
    yield from _role_faults(list(_turns(messages)))


def _turns(messages: Sequence[Body]) -> Iterator[str]:
    """Return the speaker of each turn; tool messages and the user's additions are one turn of the user."""
    before = ""
    for message in messages:
        role: str = message["role"]
        if role in {"system", "developer"}:
            continue
        speaker = "user" if role == "tool" else role
        if before != "tool" or speaker != "user":
            yield speaker
        before = role


def _chat_content_faults(message: Body) -> Iterator[str]:
    role: str = message["role"]
    if role not in {"system", "developer", "user", "assistant", "tool"}:
        yield f"no role: {role!r}"
    content = message.get("content")
    if content is None:
        if role != "assistant" or not message.get("tool_calls"):
            yield f"content of {role!r} must not be null"
    elif isinstance(content, str):
        if not content.strip() and not message.get("tool_calls"):
            yield f"content of {role!r} is empty"
    elif not content or any(not _part_says(part) for part in content):
        yield f"content of {role!r} is empty, or has an empty part"
    if message.get("tool_calls") is not None and (role != "assistant" or not message["tool_calls"]):
        yield "tool_calls belong to the assistant, and are not empty"


def _part_says(part: Body) -> bool:
    if part["type"] == "text":
        return bool(part["text"].strip())
    if part["type"] == "input_audio":
        return part["input_audio"]["format"] in {"wav", "mp3"}
    if part["type"] == "file":
        return str(part["file"]["file_data"]).startswith("data:application/pdf")
    url: str = part["image_url"]["url"] if part["type"] == "image_url" else ""
    return url.startswith("data:image/")


def _wide_faults(value: object, where: str) -> Iterator[str]:
    """Yield the places of too wide images, in OpenAI's form: the path in the request."""
    if isinstance(value, str) and value.startswith("data:image/"):
        if is_too_wide(value.partition(",")[2]):
            yield f"Invalid '{where}': the image is too wide"
    elif isinstance(value, Mapping):
        for key, held in cast("Body", value).items():
            yield from _wide_faults(held, f"{where}.{key}")
    elif isinstance(value, list):
        for number, held in enumerate(cast("list[object]", value)):
            yield from _wide_faults(held, f"{where}[{number}]")


def _call_faults(call_id: object, function: Body) -> Iterator[str]:
    if not isinstance(call_id, str) or not 0 < len(call_id) <= LONGEST_ID:
        yield f"the id of a call has 1 to {LONGEST_ID} characters: {call_id!r}"
    if not NAME.fullmatch(function["name"]):
        yield f"not the name of a function: {function['name']!r}"
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        yield "arguments must be a string"
        return
    try:
        parsed: object = json.loads(arguments, parse_constant=_no_constant)
    except ValueError:
        yield f"arguments must be JSON: {arguments!r}"
        return
    if not isinstance(parsed, dict):
        yield f"arguments must be a JSON object: {arguments!r}"


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


@_listed
def responses_faults(body: Body) -> Iterator[str]:
    """Yield the faults for which OpenAI's Responses API refuses a request."""
    items: Sequence[Body] = body["input"]
    yield from _wide_faults(items, "input")
    yield from _tool_faults(body.get("tools", ()), "parameters")
    if not items:
        yield "input is empty"
    made: list[str] = []
    answered: list[str] = []
    for number, item in enumerate(items):
        where, kind = f"input[{number}]", item.get("type", "message")
        if kind == "message":
            yield from (f"{where}: {fault}" for fault in _item_faults(item))
            missing = [each for each in made if each not in answered]
            if missing:
                yield f"{where}: no tool output found for function call {missing}"
        elif kind == "function_call":
            yield from (f"{where}: {fault}" for fault in _call_faults(item["call_id"], item))
            made.append(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in made:
                yield f"{where}: no tool call found for function call output {item['call_id']}"
            answered.append(item["call_id"])
        elif kind == "reasoning":
            yield from (
                f"{where}: {fault}" for fault in _reasoning_faults(item, items[number + 1 :])
            )
        else:
            yield f"{where}: no item: {kind!r}"
    yield from (f"call ids must be unique: {each}" for each in _repeated(made))
    yield from (f"one output for each call: {each}" for each in _repeated(answered))
    if set(made) - set(answered):
        yield f"at the end: no tool output found for function call {set(made) - set(answered)}"


def _reasoning_faults(item: Body, after: Sequence[Body]) -> Iterator[str]:
    if item["encrypted_content"] != signed("".join(part["text"] for part in item["summary"])):
        yield "the encrypted content could not be verified"
    if not after or after[0].get("type") not in {"message", "function_call"}:
        yield f"item {item['id']!r} was provided without its required following item"


def _item_faults(item: Body) -> Iterator[str]:
    if item["role"] not in {"system", "developer", "user", "assistant"}:
        yield f"no role: {item['role']!r}"
    content: str | Sequence[Body] = item["content"]
    texts = (
        [content]
        if isinstance(content, str)
        else [part.get("text", "an image, or a refusal") for part in content]
    )
    if not texts or not all(text.strip() for text in texts):
        yield f"content of {item['role']!r} is empty, or has an empty part"
