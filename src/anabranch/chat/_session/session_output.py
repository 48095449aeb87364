"""The output of a session for a line of input, for any front end to show."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from anabranch.errors import AnabranchError
from anabranch.messages import ResultBlock, text_of
from anabranch.models import ModelError
from anabranch.tree import (
    CLOSED,
    LEFT,
    STOPPED,
    WAITS,
    Navigator,
    Node,
    file_lines,
    glimpse,
    is_no_result,
    state_of,
    text_for_person,
)

EXPECTED = (AnabranchError, ModelError)
"""The errors whose text is for the person."""

Action: TypeAlias = Literal["clear", "exit"]
"""What a front end is asked to do: clear the screen, or end the session."""


@dataclass(frozen=True, slots=True)
class Output:
    """One thing to show.

    Attributes:
        type: ``message`` from the conversation, ``system`` about it, or ``error``.
        content: the text; may be empty if there is an action.
        node_id: the node that the text belongs to, ``None`` if it belongs to none.
        action: what the front end should do besides.
        is_markdown: whether a model has written the text.
    """

    type: Literal["system", "message", "error"]
    content: str
    node_id: str | None = None
    action: Action | None = None
    is_markdown: bool = field(default=False, compare=False)


class SessionError(AnabranchError):
    """A line cannot be carried out; the message says why, in a sentence for the person."""


def error_text(error: Exception) -> str:
    """Return the text to show for an error."""
    if isinstance(error, EXPECTED):
        return str(error)
    return f"An unexpected error: {type(error).__name__}: {error}. The log has the details."


def result_text(content: Iterable[ResultBlock]) -> str:
    """Return the text of a result; for what is no text, and for no result, words that say so."""
    blocks = list(content)
    if is_no_result(blocks):
        return "(stopped before it returned anything)"
    return "\n".join(filter(None, [text_of(blocks), *file_lines(blocks)]))


PREVIEW = 300
HOW_ON = {
    "": "/answer answers it again",
    WAITS: "/answer answers it, and what you say instead leaves it unanswered",
    LEFT: "/answer answers it",
    CLOSED: "it comes from a file",
    STOPPED: "/auto goes on",
}
"""How to go on from a question, or from a turn that has ended, by its state."""
TRY_AGAIN = "/auto tries again"
"""How to go on from a turn that has failed."""
BEFORE = "Before the first message: what you say now is a new beginning."


def position(walk: Navigator, node_id: str | None) -> str:
    """Return one line about a place: its branch, kind and labels, what is beside it and below."""
    below = len(walk.below(node_id))
    ways = f"{below} below (/down)" if below else ""
    if node_id is None:
        return " · ".join(filter(None, [BEFORE, ways]))
    node = walk.nodes[node_id]
    places, at = walk.siblings(node_id)
    beside = f"{at + 1} of {len(places)} (/left, /right)" if len(places) > 1 else ""
    labels = ", ".join(walk.labels.get(node_id, ()))
    branch = walk.branch_of(node_id)
    parts = [branch or "", node.kind, labels and f"label {labels}", beside, ways]
    return " · ".join(filter(None, parts))


def whole(walk: Navigator, node: Node, state: str, results: Sequence[str] = ()) -> str:
    """Return the whole text of a node, the tools that it calls, what these have returned, its state."""
    text = text_for_person(node)
    lines = [text] if text.strip() else []
    lines += [f"→ {use.name}({json.dumps(use.input)})" for use in node.tool_uses]
    lines += [f"← {result}" for result in results]
    if node.kind == "question":
        followers = walk.children(node.id)
        answers = [follower.text for follower in followers if follower.kind == "answer"]
        lines += [f"(answered: {answer})" for answer in answers]
    if state or node.kind == "question":
        lines.append(f"({'; '.join(filter(None, [state, HOW_ON.get(state, TRY_AGAIN)]))})")
    return "\n".join(lines) or f"({node.kind})"


def preview(walk: Navigator, node: Node) -> str:
    """Return one line about a leaf: its depth, branch and labels, and the start of its text."""
    names = [f"depth {len(walk.path(node.id))}", walk.branch_of(node.id)]
    names += walk.labels.get(node.id, [])
    state = state_of(node, walk, {})
    shown = f"{glimpse(node, PREVIEW)} ({state})" if state else glimpse(node, PREVIEW)
    return f"[{', '.join(filter(None, names))}] {shown}"
