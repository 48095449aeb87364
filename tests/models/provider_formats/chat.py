"""OpenAI's chat completions, a format that many other providers use as well."""

from collections.abc import Iterator
from typing import Any

from tests.models.provider_formats.answers import Call, Say, event, pieces

MODEL = "qwen-test"


def whole(say: Say) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": say.text or None}
    if say.reasoning:
        message["reasoning"] = say.reasoning
    if say.calls:
        message["tool_calls"] = [_call(call, call.json) for call in say.calls]
    choice = {"index": 0, "finish_reason": _reason(say), "message": message}
    return _head("chat.completion") | {"choices": [choice], "usage": _usage(say)}


def events(say: Say) -> Iterator[bytes]:
    """Yield the reply as events: one for the role, and one for every four letters."""
    yield _chunk({"role": "assistant", "content": ""})
    if say.reasoning:
        yield _chunk({"reasoning": say.reasoning})
    for piece in pieces(say.text):
        yield _chunk({"content": piece})
    for index, call in enumerate(say.calls):
        yield _chunk({"tool_calls": [{"index": index} | _call(call, "")]})
        for piece in pieces(call.json):
            yield _chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield _chunk({}, _reason(say))
    yield event(_head("chat.completion.chunk") | {"choices": [], "usage": _usage(say)})
    yield b"data: [DONE]\n\n"


def _head(kind: str) -> dict[str, Any]:
    return {"id": "c1", "object": kind, "created": 1, "model": MODEL}


def _chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return event(_head("chat.completion.chunk") | {"choices": [choice]})


def _call(call: Call, arguments: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _reason(say: Say) -> str:
    return say.reason or ("tool_calls" if say.calls else "stop")


def _usage(say: Say) -> dict[str, Any]:
    """Return the usage; OpenAI counts cached tokens as input, and does not charge for writing them."""
    counts = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
    return counts | {"prompt_tokens_details": {"cached_tokens": say.cached[0]}}
