"""Nodes as a person reads them: the state in which a question or a turn was left, and what a branch is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.messages import ToolUseBlock, text_of
from anabranch.tree._nodes import Node
from anabranch.tree._projection import Results
from anabranch.tree._turn_end import NO_USE

__all__ = ["CLOSED", "LEFT", "STOPPED", "WAITS", "state_of", "text_for_person"]

WAITS = "waits for you"
"""The state of a question that no one has answered."""
LEFT = "left unanswered"
"""The state of a question after which something else was said."""
CLOSED = "closed"
"""The state of a question that was loaded from a file."""
STOPPED = "stopped by you"
"""The state of a turn that a person has stopped."""

Children = Callable[[str], Sequence[Node]]


def state_of(node: Node, children: Children, results: Results) -> str:
    """Return how a node was left, if that is not as a reply is: empty for most nodes.

    Args:
        node: the node.
        children: returns the nodes that follow one.
        results: those of the thread, or of the path to the node.
    """
    if node.kind == "question":
        return _state_of_question(node, children)
    went_on = any(follower.kind != "branch" for follower in children(node.id))
    return "" if went_on else _end_of_turn(node, results)


def _state_of_question(question: Node, children: Children) -> str:
    state = WAITS if question.data else CLOSED  # it comes from a file
    left = list(children(question.id))
    while left:
        node = left.pop()
        if node.kind == "answer" and node.data.get("question", question.id) == question.id:
            return ""
        if node.kind in {"question", "answer"}:  # others of the same tools
            left += children(node.id)
        else:
            state = LEFT
    return state


def _end_of_turn(node: Node, results: Results) -> str:
    end = results.get((node.id, NO_USE))
    if end is None:
        return ""
    return f"failed: {text_of(end.content)}".rstrip(".") if end.is_error else STOPPED


def text_for_person(node: Node) -> str:
    """Return what people are shown of a node; where a folded branch returns, its conclusion, too."""
    concluded = [_field(use, "message") for use in node.tool_uses if use.name == "branch_return"]
    return "\n".join(filter(None, [node.shown, *concluded]))


def _field(use: ToolUseBlock, name: str) -> str:
    value = use.input.get(name)
    return value if isinstance(value, str) else ""
