"""Results of unfinished calls: a separate variant, with a handle and the tool that continues the call.

Such a result is not an error, since hosts repeat failed calls, and each repetition would be another
call. The result is an error only if an author's output schema excludes the variant.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from pydantic import JsonValue

from anabranch._schemas import Form
from anabranch.errors import ToolError

if TYPE_CHECKING:
    from anabranch.mcp._service import OpenCall

CONTINUE_CALL: Final = "continue_call"
ANSWER_QUESTIONS: Final = "answer_questions"

UNFINISHED: Final = "unfinished"
VARIANT: Final[dict[str, Any]] = {
    "type": "object",
    "description": "The call is not done; this is no value. Continue as the text says.",
    "properties": {
        "tool": {"type": "string", "description": "The tool that continues the call."},
        "call": {"type": "string", "description": "The handle to pass to that tool."},
        "questions": {
            "type": "array",
            "description": "The questions to ask the user first.",
            "items": {
                "type": "object",
                "properties": {
                    "question": {"type": "string"},
                    "message": {"type": "string"},
                    "schema": {"type": "object"},
                    "url": {"type": "string"},
                },
                "required": ["question", "message"],
            },
        },
    },
    "required": ["tool", "call", "questions"],
}


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The result of an unfinished call: a text for the model, and the same as :data:`VARIANT`."""

    text: str
    details: dict[str, JsonValue]

    @property
    def structured(self) -> dict[str, Any]:
        return {UNFINISHED: self.details}


def is_unfinished(structured: JsonValue) -> bool:
    """Return whether the structured content of a result, any JSON, marks its call as unfinished."""
    if not isinstance(structured, dict) or structured.keys() != {UNFINISHED}:
        return False
    details = structured[UNFINISHED]
    return isinstance(details, dict) and details.keys() >= {*VARIANT["required"]}


def with_unfinished(schema: Mapping[str, Any]) -> dict[str, Any]:
    variants = [{"required": schema["required"]}, {"required": [UNFINISHED]}]
    rest = {name: value for name, value in schema.items() if name != "required"}
    return {**rest, "properties": {**schema["properties"], UNFINISHED: VARIANT}, "oneOf": variants}


def chain_end(call: OpenCall, called: str, handle: str, *, asleep: bool) -> Unfinished:
    space, own = _names(call, called)
    reason = "needs more answers than one request may ask for"
    if asleep:
        reason = "sleeps longer than one request may wait"
    text = (
        f"{space}{call.tool.name} is not done: it {reason}."
        f" All answers are stored. Call the tool {space}{CONTINUE_CALL} with"
        f" call={handle!r} to continue exactly where it stopped."
    )
    return _result(call, own, text, f"{space}{CONTINUE_CALL}", handle, [])


def open_questions(
    call: OpenCall,
    called: str,
    handle: str,
    requests: Mapping[str, types.InputRequest],
    links: Mapping[str, str],
) -> Unfinished:
    """Return the result that lists questions, with ``links`` by step, for a client that shows none."""
    space, own = _names(call, called)
    asked = {
        step_id: request.params
        for step_id, request in requests.items()
        if isinstance(request, types.ElicitRequest)
    }
    first = next(iter(requests))
    text = (
        f"{space}{call.tool.name} is not done: it needs answers from the user. Ask the user each"
        " question below and wait for the reply: do not answer for the user, and do not guess. Then"
        f" call the tool {space}{ANSWER_QUESTIONS} with call={handle!r} and the answers, one object"
        f' for each question: {{"question": {json.dumps(first)}, "action": "accept", "content":'
        ' {…}}. If the user declines, give "action": "decline" without content; if the user'
        ' wants to stop, "action": "cancel".'
    )
    if links:
        text += (
            " Better, give the user the link below each question; once the user has answered there,"
            " call the same tool with call alone."
        )
    texts = [_question(step_id, params, links.get(step_id)) for step_id, params in asked.items()]
    details = [_details(step_id, params, links.get(step_id)) for step_id, params in asked.items()]
    tool = f"{space}{ANSWER_QUESTIONS}"
    return _result(call, own, "\n\n".join([text, *texts]), tool, handle, details)


def _details(step_id: str, params: types.ElicitRequestParams, link: str | None) -> JsonValue:
    asked: dict[str, JsonValue] = {"question": step_id, "message": params.message}
    if isinstance(params, types.ElicitRequestURLParams):
        return {**asked, "url": params.url}
    return {**asked, "schema": dict(params.requested_schema), **({"url": link} if link else {})}


def _question(step_id: str, params: types.ElicitRequestParams, link: str | None) -> str:
    head = f"Question {json.dumps(step_id)}: {params.message}"
    if isinstance(params, types.ElicitRequestURLParams):
        return f"{head}\n  Ask the user to open {params.url} and to say when that is done; content: {{}}"
    form = Form.model_validate(params.requested_schema)
    lines = [
        f"  - {name}: {field.in_words(required=name in form.required)}"
        for name, field in form.properties.items()
    ]
    schema = json.dumps(params.requested_schema, ensure_ascii=False)
    lines.append(f"  JSON Schema of the content: {schema}")
    if link is not None:
        lines.append(f"  Or give the user this link to a page with the form: {link}")
    return "\n".join([head, *lines])


def _names(call: OpenCall, called: str) -> tuple[str, str]:
    """Return the namespace that a host has added to the called tool's name, and the tool's own name."""
    names = (call.tool.name, CONTINUE_CALL, ANSWER_QUESTIONS)
    ends = [name for name in names if called.endswith(name)]
    own = max(ends, key=len, default=called)  # a tool may be named "call"
    return called.removesuffix(own), own


def _result(
    call: OpenCall, own: str, text: str, tool: str, handle: str, questions: list[JsonValue]
) -> Unfinished:
    is_ours = own != call.tool.name and own in (CONTINUE_CALL, ANSWER_QUESTIONS)
    if is_ours or call.tool.returns in (str, Any, inspect.Signature.empty):
        return Unfinished(text, {"tool": tool, "call": handle, "questions": questions})
    raise ToolError(text)
