"""OpenAI's Responses API."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from tests.models.provider_formats.answers import Call, Say, event, pieces, signed

MODEL = "gpt-test-1"


def whole(say: Say) -> dict[str, Any]:
    items: list[dict[str, Any]] = [_reasoning(say.reasoning)] if say.reasoning else []
    items += [_message(say.text, "completed")] if say.text else []
    items += [_call(call, call.json, "completed") for call in say.calls]
    if say.reason is None:
        return _response("completed", items) | {"usage": _usage(say)}
    ending = {"incomplete_details": {"reason": say.reason}, "usage": _usage(say)}
    return _response("incomplete", items) | ending


def events(say: Say) -> Iterator[bytes]:
    """Yield the reply as events: four before the first four letters."""
    numbers = count()
    for content in _events(say):
        yield event(content | {"sequence_number": next(numbers)}, content["type"])


def _events(say: Say) -> Iterator[dict[str, Any]]:
    started = _response("in_progress", [])
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    if say.reasoning:
        done = _reasoning(say.reasoning)
        begun = done | {"summary": [], "encrypted_content": None}
        yield {"type": "response.output_item.added", "output_index": 0, "item": begun}
        where = {"output_index": 0, "item_id": done["id"], "summary_index": 0}
        yield {"type": "response.reasoning_summary_text.delta", **where, "delta": say.reasoning}
        yield {"type": "response.output_item.done", "output_index": 0, "item": done}
    parts: list[str | Call] = [say.text] if say.text else []
    for index, part in enumerate([*parts, *say.calls], 1 if say.reasoning else 0):
        yield from _text(part, index) if isinstance(part, str) else _function(part, index)
    done = whole(say)
    yield {"type": f"response.{done['status']}", "response": done}


def _text(text: str, index: int) -> Iterator[dict[str, Any]]:
    where = {"output_index": index, "item_id": "m1", "content_index": 0}
    item = _message(text, "completed")
    begun: dict[str, Any] = _message("", "in_progress") | {"content": []}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": []}
    yield {"type": "response.content_part.added", **where, "part": part}
    for piece in pieces(text):
        yield {"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **where, "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **where, "part": item["content"][0]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _function(call: Call, index: int) -> Iterator[dict[str, Any]]:
    begun, done = _call(call, "", "in_progress"), _call(call, call.json, "completed")
    where = {"output_index": index, "item_id": done["id"]}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    for piece in pieces(call.json):
        yield {"type": "response.function_call_arguments.delta", **where, "delta": piece}
    ended = {"arguments": call.json, "name": call.name}
    yield {"type": "response.function_call_arguments.done", **where, **ended}
    yield {"type": "response.output_item.done", "output_index": index, "item": done}


def _reasoning(text: str) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": text}]
    head = {"type": "reasoning", "id": "r1", "encrypted_content": signed(text)}
    return head | {"summary": summary}


def _message(text: str, status: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": []}]
    head = {"type": "message", "id": "m1", "role": "assistant", "status": status}
    return head | {"content": content}


def _call(call: Call, arguments: str, status: str) -> dict[str, Any]:
    head = {"type": "function_call", "id": f"f_{call.id}", "call_id": call.id, "status": status}
    return head | {"name": call.name, "arguments": arguments}


def _response(status: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    head = {"id": "resp_1", "object": "response", "created_at": 1, "status": status}
    settings: dict[str, Any] = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return head | settings | {"model": MODEL, "output": items, "incomplete_details": None}


def _usage(say: Say) -> dict[str, Any]:
    return {
        "input_tokens": 11,
        "output_tokens": 5,
        "total_tokens": 16,
        "input_tokens_details": {
            "cached_tokens": say.cached[0],
            "cache_write_tokens": say.cached[1],
        },
        "output_tokens_details": {"reasoning_tokens": 0},
    }
