"""The output of a typed line, and the texts that describe nodes and places to the user."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from anabranch._text import json_line
from anabranch.errors import AnabranchError
from anabranch.messages import ResultBlock, text_of
from anabranch.models import ModelError
from anabranch.tree import (
    CLOSED,
    CUT_OFF,
    FILTERED,
    LEFT,
    SILENT,
    STOPPED,
    WAITS,
    Navigator,
    Node,
    Path,
    file_lines,
    glimpse,
    is_no_result,
    state_of,
    text_for_user,
)

Action: TypeAlias = Literal["clear", "exit"]
"""An action for the front end: clear the screen, or end the session."""


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a typed line: a text, an action, or both.

    Attributes:
        type: ``message`` from the conversation, ``system`` about it, or ``error``.
        content: the text; may be empty if there is an action.
        node_id: the node that the text belongs to, ``None`` if it belongs to none.
        is_markdown: whether a model wrote the text.
    """

    type: Literal["system", "message", "error"]
    content: str
    node_id: str | None = None
    action: Action | None = None
    is_markdown: bool = field(default=False, compare=False)


class SessionError(Exception):
    """The session cannot carry out a typed line; the message tells the user why."""


EXPECTED = (SessionError, AnabranchError, ModelError)
"""The errors whose text the user sees."""


def error_text(error: Exception) -> str:
    if isinstance(error, EXPECTED):
        return str(error)
    return f"An unexpected error: {type(error).__name__}: {error}. The log has the details."


def result_text(content: Iterable[ResultBlock]) -> str:
    """Return the text of a tool's result, or a description of a result without text."""
    blocks = list(content)
    if is_no_result(blocks):
        return "(stopped before it returned a result)"
    return "\n".join(filter(None, [text_of(blocks), *file_lines(blocks)]))


PREVIEW = 300
HOW_ON = {
    "": "/answer answers it again",
    WAITS: "/answer answers it, and a message leaves it unanswered",
    LEFT: "/answer answers it",
    CLOSED: "it comes from a file",
    STOPPED: "/auto continues",
    CUT_OFF: "“continue” asks for the rest",
    FILTERED: "",
    SILENT: "",
}
"""How to continue from a question or an ended turn, by its state."""
TRY_AGAIN = "/auto retries"
"""How to continue after a failed turn."""
BEFORE = "Before the first message: your next message starts a new beginning."


def position(walk: Navigator, node_id: str | None) -> str:
    """Return one line about a node: branch, kind, labels, and its neighbours in the tree."""
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
    """Return the whole text of a node, with its tool calls, their results, and its state."""
    text = text_for_user(node)
    lines = [text] if text.strip() else []
    lines += [f"→ {use.name}({json_line(use.input)})" for use in node.tool_uses]
    lines += [f"← {result}" for result in results]
    if node.kind == "question":
        followers = walk.children(node.id)
        answers = [follower.text for follower in followers if follower.kind == "answer"]
        lines += [f"(answered: {answer})" for answer in answers]
    if state or node.kind == "question":
        lines.append(ending(state))
    return "\n".join(lines) or f"({node.kind})"


def ending(state: str) -> str:
    """Return the line about the state of a node, with the user's way to continue."""
    return f"({'; '.join(filter(None, [state, HOW_ON.get(state, TRY_AGAIN)]))})"


def preview(walk: Navigator, node: Node) -> str:
    """Return one line about a leaf: its depth, branch and labels, and the start of its text."""
    names = [f"depth {len(walk.path(node.id))}", walk.branch_of(node.id)]
    names += walk.labels.get(node.id, [])
    state = state_of(node, walk, Path((), {}))
    shown = f"{glimpse(node, PREVIEW)} ({state})" if state else glimpse(node, PREVIEW)
    return f"[{', '.join(filter(None, names))}] {shown}"
