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

    ``message`` comes from the conversation, ``system`` is about it; a model wrote ``is_markdown``.
    """

    type: Literal["system", "message", "error"]
    content: str
    node_id: str | None = None
    action: Action | None = None
    is_markdown: bool = field(default=False, compare=False)


class SessionError(Exception):
    """The session cannot carry out a typed line, for the reason that the user reads."""


EXPECTED = (SessionError, AnabranchError, ModelError)
"""The errors whose text the user sees."""


def error_text(error: Exception) -> str:
    if isinstance(error, EXPECTED):
        return str(error)
    return f"An unexpected error: {type(error).__name__}: {error}. The log has the details."


def result_text(content: Iterable[ResultBlock]) -> str:
    blocks = list(content)
    if is_no_result(blocks):
        return "(stopped before it returned a result)"
    return "\n".join(filter(None, [text_of(blocks), *file_lines(blocks)]))


PREVIEW = 300
HOW_ON = {
    "": "/answer changes the answer",
    WAITS: "/answer answers it, a message skips it",
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
BEFORE = "You are before the first message. Your next message starts a new branch."


def position(walk: Navigator, node_id: str | None) -> str:
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
    return f"({'; '.join(filter(None, [state, HOW_ON.get(state, TRY_AGAIN)]))})"


def preview(walk: Navigator, node: Node) -> str:
    names = [f"depth {len(walk.path(node.id))}", walk.branch_of(node.id)]
    names += walk.labels.get(node.id, [])
    state = state_of(node, walk, Path((), {}))
    shown = f"{glimpse(node, PREVIEW)} ({state})" if state else glimpse(node, PREVIEW)
    return f"[{', '.join(filter(None, names))}] {shown}"
