"""The text that describes a place in the tree: where it is, and what its node says."""

from __future__ import annotations

import json
from collections.abc import Sequence

from anabranch.tree import (
    CLOSED,
    LEFT,
    STOPPED,
    WAITS,
    Navigator,
    Node,
    glimpse,
    state_of,
    text_for_person,
)

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
