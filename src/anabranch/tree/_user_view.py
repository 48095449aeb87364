"""The texts and states of nodes as users read them, and the blocks that providers refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.messages import FileBlock, Message, TextBlock, ToolResultBlock
from anabranch.tree._files import file_line
from anabranch.tree._finding import Navigator
from anabranch.tree._left_out import left_out_on, without
from anabranch.tree._projection import Results, is_placeholder, placed_blocks
from anabranch.tree._threads import ASIDE, Node, Path, Tree

WAITS = "waits for you"
LEFT = "left unanswered"
"""The state of a question that another message follows, or whose branch has ended."""
CLOSED = "closed"
"""The state of a question that was loaded from a file."""
STOPPED = "stopped by you"
CUT_OFF = "cut off at the limit of tokens"
FILTERED = "ended by the provider's content filter"
SILENT = "the model wrote no text"

_INCOMPLETE = {"maxTokens": CUT_OFF, "content_filter": FILTERED}

ERROR = "error"
"""The data key of the reason, at the node where a branch has failed."""


def state_of(node: Node, walk: Navigator, known: Path | Tree) -> str:
    """Return the state in which a node ended, such as stopped; empty for most nodes."""
    if node.kind == "question":
        return _state_of_question(node, walk, known.results)
    end = known.ends.get(node.id)
    if end is None or any(follower.kind != "branch" for follower in walk.children(node.id)):
        return state_of_reply(node)
    return STOPPED if end.error is None else f"failed: {end.error}".rstrip(".")


def state_of_reply(node: Node) -> str:
    """Return whether a reply is incomplete or blank, as its state; empty for other nodes."""
    if node.kind != "assistant" or node.tool_uses:
        return ""
    reason = node.data.get("stop_reason")
    if isinstance(reason, str) and reason in _INCOMPLETE:
        return _INCOMPLETE[reason]
    is_blank = all(isinstance(each, TextBlock) and not each.text.strip() for each in node.content)
    return SILENT if is_blank and ERROR not in node.data else ""


def open_questions(tree: Tree) -> list[Node]:
    """Return the questions that wait: no message follows, and no enclosing branch has ended."""
    walk = Navigator(tree)
    asked = (node for node in tree.nodes if node.kind == "question")
    return [each for each in asked if state_of(each, walk, tree) == WAITS]


def is_said(node: Node) -> bool:
    """Return whether a user wrote this node; an automatic request for a summary does not count."""
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
    return WAITS if question.data else CLOSED  # without data: from a file


def _followers(node: Node, walk: Navigator) -> Iterator[Node]:
    left = list(walk.children(node.id))
    while left:
        each = left.pop()
        if each.kind in ASIDE:
            left += walk.children(each.id)
        if each.kind != "branch":
            yield each


def _is_over(node: Node, walk: Navigator, results: Results) -> bool:
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


def text_for_user(node: Node) -> str:
    returned = [use.input.get("message") for use in node.tool_uses if use.name == "branch_return"]
    concluded = [message for message in returned if isinstance(message, str)]
    files = [file_line(block) for block in node.content if isinstance(block, FileBlock)]
    return "\n".join(filter(None, [*files, node.shown, *concluded]))


@dataclass(frozen=True, slots=True)
class RefusedBlock:
    """A refused block of a node, in whose place the model was sent ``line``."""

    node: str
    block: int
    part: int | None
    line: str


def refused_blocks(path: Sequence[Node], results: Results) -> Iterator[RefusedBlock]:
    places = left_out_on(path[-1:])
    for node, (number, first), blocks in placed_blocks(path, results) if places else ():
        for at, block in enumerate(blocks):
            place = (number, first + at)
            parts = block.content if isinstance(block, ToolResultBlock) else (block,)
            for n, part in enumerate(parts):
                inner = n if isinstance(block, ToolResultBlock) else None
                if (place if inner is None else (*place, inner)) in places:
                    [sent] = without([Message(role="user", content=(part,))], [(0, 0)])
                    if isinstance(line := sent.content[0], TextBlock):
                        yield RefusedBlock(node.id, at, inner, line.text)
