"""Nodes as a person reads them: the state in which a question or a turn was left, and what a branch is about."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.messages import ToolUseBlock
from anabranch.tree._navigator import Navigator
from anabranch.tree._nodes import Node
from anabranch.tree._projection import ASIDE, Results, is_placeholder
from anabranch.tree._tree_store import Tree
from anabranch.tree._turn_end import end_of_turn

WAITS = "waits for you"
"""The state of a question that no one has answered."""
LEFT = "left unanswered"
"""The state of a question after which something else was said, or whose branch has ended."""
CLOSED = "closed"
"""The state of a question that was loaded from a file."""
STOPPED = "stopped by you"
"""The state of a turn that a person has stopped."""

ERROR = "error"
"""In the node at which a branch has failed: why."""


def state_of(node: Node, walk: Navigator, results: Results) -> str:
    """Return how a node was left, if that is not as a reply is: empty for most nodes.

    Args:
        node: the node.
        walk: its thread.
        results: those of the thread, or of the path to the node.
    """
    if node.kind == "question":
        return _state_of_question(node, walk, results)
    went_on = any(follower.kind != "branch" for follower in walk.children(node.id))
    return "" if went_on else _end_of_turn(node, results)


def open_questions(tree: Tree) -> list[Node]:
    """Return the questions of a whole thread that wait for an answer, the oldest first.

    One that the conversation has left, by a message below it, waits no longer; nor does one in a
    branch whose tool has returned, as after an interruption.
    """
    walk = Navigator(tree)
    asked = (node for node in tree.nodes if node.kind == "question")
    return [each for each in asked if state_of(each, walk, tree.results) == WAITS]


def is_said(node: Node) -> bool:
    """Whether a person has said this: a branch's own request for a summary is not."""
    return node.kind == "user" and ERROR not in node.data


def _state_of_question(question: Node, walk: Navigator, results: Results) -> str:
    is_left = False
    for node in _followers(question, walk):
        answered = node.data.get("question", node.parent_id)
        if node.kind == "answer" and answered == question.id:
            return ""
        is_left = is_left or node.kind not in ASIDE
    if is_left or _is_over(question, walk, results):
        return LEFT
    return WAITS if question.data else CLOSED  # it comes from a file


def _followers(node: Node, walk: Navigator) -> Iterator[Node]:
    """Yield what follows a node, and the questions and answers there; branches are beside it."""
    left = list(walk.children(node.id))
    while left:
        each = left.pop()
        if each.kind in ASIDE:
            left += walk.children(each.id)
        if each.kind != "branch":
            yield each


def _is_over(node: Node, walk: Navigator, results: Results) -> bool:
    """Whether a node is in a branch whose tool has returned, or whose caller was left."""
    while not is_said(node):
        above = walk.nodes.get(node.parent_id or "")
        if above is None:
            return False
        result = results.get((above.id, str(node.data.get("tool_use_id"))))
        if node.kind == "branch" and (
            (result is not None and not is_placeholder(result))
            or any(each.kind not in ASIDE for each in _followers(above, walk))
        ):
            return True
        node = above
    return False


def _end_of_turn(node: Node, results: Results) -> str:
    end = end_of_turn(node.id, results)
    if end is None:
        return ""
    return STOPPED if end.error is None else f"failed: {end.error}".rstrip(".")


def text_for_person(node: Node) -> str:
    """Return what people are shown of a node; where a folded branch returns, its conclusion, too."""
    concluded = [_field(use, "message") for use in node.tool_uses if use.name == "branch_return"]
    return "\n".join(filter(None, [node.shown, *concluded]))


def _field(use: ToolUseBlock, name: str) -> str:
    value = use.input.get(name)
    return value if isinstance(value, str) else ""
