"""Results of calls that are not done: they say so in words, and name a handle and a tool to go on.

Such a result is ordinary text, or an error where the tool's output schema has no room for a text.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types

from anabranch._form_fields import Form
from anabranch.errors import ToolError
from anabranch.mcp._handles import OpenCall

__all__ = ["ANSWER_QUESTIONS", "CONTINUE_CALL", "chain_end", "open_questions"]

CONTINUE_CALL: Final = "continue_call"
ANSWER_QUESTIONS: Final = "answer_questions"

ASK_THE_USER = (
    "Ask the user each question below and wait for the reply: do not answer for the user, and do not"
    " guess."
)

ASKS_MORE = "it needs more answers than one request may ask for."
SLEEPS = "it waits for a time, and that is longer than one request may wait."

BY_LINK = (
    "Better, give the user the link below each question; once the user has answered there, call the"
    " same tool with call alone."
)


def chain_end(call: OpenCall, called: str, handle: str, *, asleep: bool) -> str:
    """Return the result that ends a chain of rounds; ``asleep`` says that the call asks nothing now.

    Raises:
        ToolError: with the same text, if the tool's output schema has no room for it.
    """
    space = _space(call, called)
    return _result(
        call,
        f"{space}{call.tool.name} is not done: {SLEEPS if asleep else ASKS_MORE}"
        f" All that was answered is stored. Call the tool {space}{CONTINUE_CALL} with"
        f" call={handle!r} to go on exactly where it stopped.",
    )


def open_questions(
    call: OpenCall,
    called: str,
    handle: str,
    requests: Mapping[str, types.InputRequest],
    links: Mapping[str, str],
) -> str:
    """Return the result that lists questions to the user, for a client that cannot show them.

    ``links`` are to pages of the questions, by step.

    Raises:
        ToolError: with the same text, if the tool's output schema has no room for it.
    """
    space = _space(call, called)
    asked = [
        _question(step_id, request.params, links.get(step_id))
        for step_id, request in requests.items()
        if isinstance(request, types.ElicitRequest)
    ]
    first = next(iter(requests))
    return _result(
        call,
        f"{space}{call.tool.name} is not done: it needs answers of the user. {ASK_THE_USER} Then"
        f" call the tool {space}{ANSWER_QUESTIONS} with call={handle!r} and the answers, one object"
        f' for each question: {{"question": {json.dumps(first)}, "action": "accept", "content":'
        ' {…}}. Where the user declines, give "action": "decline" without content; where the user'
        ' wants to stop, "action": "cancel".'
        + (f" {BY_LINK}" if links else "")
        + "\n\n"
        + "\n\n".join(asked),
    )


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


def _space(call: OpenCall, called: str) -> str:
    """Return the namespace into which a host has put the tool that the client has called."""
    names = (call.tool.name, CONTINUE_CALL, ANSWER_QUESTIONS)
    own = next((name for name in names if called.endswith(name)), called)
    return called.removesuffix(own)


def _result(call: OpenCall, text: str) -> str:
    if call.tool.returns in (str, Any, inspect.Signature.empty):
        return text
    raise ToolError(text)
