"""Anthropic's Messages API."""

from collections.abc import Iterator
from typing import Any

from tests.models.provider_formats.answers import Call, Say, event, pieces, signed

MODEL = "claude-test-1"


def whole(say: Say) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if say.reasoning:
        content += [_thinking(say.reasoning, signed(say.reasoning))]
    content += [_text(say.text)] if say.text else []
    content += [_use(call, dict(call.arguments)) for call in say.calls]
    return _message(say, content) | {"stop_reason": _reason(say), "usage": _usage(say, 5)}


def events(say: Say) -> Iterator[bytes]:
    """Yield the reply as events: three for a text of up to four letters, and one more for every four."""
    started = _message(say, []) | {"stop_reason": None, "usage": _usage(say, 1)}
    yield _event("message_start", message=started)
    yield _event("ping")
    if say.reasoning:
        yield _event("content_block_start", index=0, content_block=_thinking("", ""))
        yield _delta(0, {"type": "thinking_delta", "thinking": say.reasoning})
        yield _delta(0, {"type": "signature_delta", "signature": signed(say.reasoning)})
        yield _event("content_block_stop", index=0)
    parts: list[str | Call] = [say.text] if say.text else []
    for index, part in enumerate([*parts, *say.calls], 1 if say.reasoning else 0):
        if isinstance(part, str):
            yield _event("content_block_start", index=index, content_block=_text(""))
            for piece in pieces(part):
                yield _delta(index, {"type": "text_delta", "text": piece})
        else:
            yield _event("content_block_start", index=index, content_block=_use(part, {}))
            for piece in pieces(part.json):
                yield _delta(index, {"type": "input_json_delta", "partial_json": piece})
        yield _event("content_block_stop", index=index)
    ending = {"stop_reason": _reason(say), "stop_sequence": None}
    yield _event("message_delta", delta=ending, usage={"output_tokens": 5})
    yield _event("message_stop")


def _event(kind: str, **content: Any) -> bytes:
    return event({"type": kind, **content}, kind)


def _delta(index: int, delta: dict[str, Any]) -> bytes:
    return _event("content_block_delta", index=index, delta=delta)


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _thinking(thinking: str, signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": thinking, "signature": signature}


def _use(call: Call, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _message(say: Say, content: list[dict[str, Any]]) -> dict[str, Any]:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL}
    return head | {"content": content, "stop_sequence": None}


def _reason(say: Say) -> str:
    return say.reason or ("tool_use" if say.calls else "end_turn")


def _usage(say: Say, output: int) -> dict[str, Any]:
    """Return the usage; Anthropic counts cached tokens separately from the input."""
    read, written = say.cached
    return {
        "input_tokens": 11 - read - written,
        "output_tokens": output,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
    }
