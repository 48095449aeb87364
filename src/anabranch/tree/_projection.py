"""From a path of the tree to what a provider is sent: law 6.

Owns this pure function of one path, and the same for several that share a beginning and for a whole
tree at once. Whatever path it is given, the messages alternate between user and assistant, begin
with the user, hold no empty block, and answer each tool use exactly once, in the message after it;
ids of tool uses never repeat, and ids and names have no characters that a provider refuses. It never
looks anything up: the path and the results along it are all there is. A longer path has the shorter
one's messages as its beginning (but for the message that it continues), so that providers' prompt
caches hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from anabranch.messages import (
    NOTHING,
    Block,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    unchecked,
)
from anabranch.tree._nodes import ROLES, Kind, Node, Result, Role
from anabranch.tree._wire_names import LONGEST, wire_name

__all__ = ["NO_RESULT", "Results", "project", "project_each", "tell"]

Results: TypeAlias = Mapping[tuple[str, str], Result]
"""By the id of the node that holds it, and the tool use's."""

_Closed: TypeAlias = "tuple[_Closed | None, Message]"
"""A message, after all before it: where paths part, both go on from one of these."""

_ASIDE: frozenset[Kind] = frozenset({"question", "answer"})
"""Of these a provider hears nothing."""

NO_RESULT = "The tool was interrupted before it returned anything."
"""Stands for the result of a tool use that has none."""


def project(path: Iterable[Node], results: Results) -> tuple[Message, ...]:
    """Return the messages of ``path``, which leads from a beginning to any node."""
    projection = _Projection(results)
    for node in path:
        projection.add(node)
    return projection.messages()


def tell(nodes: Iterable[Node], results: Results) -> dict[str, tuple[Block, ...]]:
    """Return for each node of a tree what a provider is told of it, on whatever path.

    Tool uses have the ids that they are told under, and the node of the user's that follows on
    them begins with their results. Where the assistant itself goes on, it has none of them.
    Questions and answers, of which a provider hears nothing, have their own content.

    Args:
        nodes: a tree's, parents before children.
        results: all that its nodes hold.
    """
    below: dict[str | None, list[Node]] = {}
    for node in nodes:
        below.setdefault(node.parent_id, []).append(node)
    told: dict[str, tuple[Block, ...]] = {}
    waiting = [(node, _Projection(results)) for node in below.get(None, ())]
    while waiting:
        node, projection = waiting.pop()
        told[node.id] = projection.add(node)
        followers = below.get(node.id, [])
        waiting += [(other, projection.copy()) for other in followers[1:]]
        waiting += [(first, projection) for first in followers[:1]]
    return told


def project_each(
    path: Iterable[Node], ends: Iterable[Node], results: Results
) -> Iterator[tuple[Message, ...]]:
    """Yield the messages of ``path`` with each of ``ends`` at its end; all share its messages.

    ``ends`` are messages: what is true of questions and answers is not looked for among them.
    """
    trunk = _Projection(results)
    for node in path:
        trunk.add(node)
    trunk.answer()
    for end in ends:
        twig = trunk.copy()
        twig.add(end)
        yield twig.messages()


class _Projection:
    """Messages under construction.

    The turn that is being built takes in whatever the same role goes on saying; with the other
    role's first word it is closed. Tool uses wait until then for the results that answer them.
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        self._closed: _Closed | None = None
        self._role: Role = "user"
        self._spoken = False
        self._blocks: list[Block] = []
        self._waiting: list[tuple[str, str]] = []  # each tool use as it was stored, and as told
        self._holders: list[str] = []
        self._told: dict[str, None] = {}  # all twins' ids, in order; mine are the first of them
        self._mine = 0

    def copy(self) -> _Projection:
        """Return a projection that goes on from here by itself.

        To copy costs the same however long the path is: twins share what is before. So they are to
        be used depth first: each to its end, before one that was copied earlier goes on.
        """
        twin = _Projection(self._results)
        twin._closed = self._closed
        twin._role, twin._spoken = self._role, self._spoken
        twin._blocks = list(self._blocks)
        twin._waiting = list(self._waiting)
        twin._holders = list(self._holders)
        twin._told, twin._mine = self._told, self._mine
        return twin

    def add(self, node: Node) -> tuple[Block, ...]:
        """Take in one more node; return what is told of it."""
        kind = node.kind
        if kind in _ASIDE:
            self._holders.append(node.id)  # from an answer on, a call may have run anew
            return node.content
        role = ROLES[kind]
        answers = self._turn(role) if role != self._role or self._waiting else ()
        self._spoken = True
        if kind == "assistant":
            self._holders = [node.id]
        own = [
            self._named(block) if block.type == "tool_use" else block
            for block in node.content
            if _says(block, role)
        ]
        self._blocks += own
        return (*answers, *own) if role == "user" else tuple(own)

    def answer(self) -> None:
        """Answer the tool uses at the end of the path."""
        if self._waiting:
            self._turn("user")

    def messages(self) -> tuple[Message, ...]:
        """Return them all; tool uses at the end of the path are answered, too."""
        self.answer()
        self._close()
        if self._closed is None:
            return (_message("user", ()),)
        *before, last = _in_order(self._closed)
        return (*before, _ending(last) if last.role == "assistant" else last)

    def _turn(self, role: Role) -> Sequence[Block]:
        """Let ``role`` speak; tool uses are answered first, by the user. Return the answers."""
        self._close()
        if not self._waiting:
            self._role = role
            return ()
        answers = [self._answer(stored, told) for stored, told in self._waiting]
        self._blocks += answers
        self._waiting = []
        self._role = "user"
        if role != "user":
            self._close()
            self._role = role
        return answers

    def _close(self) -> None:
        if not self._spoken and not self._blocks:
            return
        if self._closed is None and self._role == "assistant":
            self._closed = (None, _message("user", ()))
        self._closed = (self._closed, _message(self._role, self._blocks))
        self._spoken, self._blocks = False, []

    def _named(self, block: ToolUseBlock) -> ToolUseBlock:
        """Return ``block`` under an id that nothing before it has."""
        while len(self._told) > self._mine:  # what a twin has added, and is done with
            self._told.popitem()
        told, number = wire_name(block.id), 1
        while told in self._told:
            number += 1
            suffix = f"_{number}"
            told = wire_name(block.id)[: LONGEST - len(suffix)] + suffix
        self._told[told] = None
        self._mine += 1
        self._waiting.append((block.id, told))
        name = wire_name(block.name)
        if (told, name) == (block.id, block.name):
            return block
        return block.model_copy(update={"id": told, "name": name})

    def _answer(self, stored: str, told: str) -> ToolResultBlock:
        for holder in reversed(self._holders):
            result = self._results.get((holder, stored))
            if result is not None:
                content = tuple(block for block in result.content if _says(block, "user"))
                return _result(
                    told,
                    content or (TextBlock(text=NOTHING),),
                    is_error=result.is_error and result.pending is None,
                )
        return _result(told, (TextBlock(text=NO_RESULT),), is_error=True)


def _in_order(last: _Closed | None) -> list[Message]:
    messages: list[Message] = []
    while last is not None:
        last, message = last
        messages.append(message)
    messages.reverse()
    return messages


def _says(block: Block, role: Role) -> bool:
    """Whether a provider takes the block from ``role``; tools' results come from beside the nodes."""
    # By its type's name: to ask pydantic whose instance a block is takes ten times as long.
    match block.type:
        case "text":
            return bool(block.text.strip())
        case "tool_use":
            return role == "assistant"
        case "tool_result":
            return False
        case "image" | "audio":
            return role == "user"


def _ending(message: Message) -> Message:
    """Return the last message, the assistant's, without space at its end, which is refused there."""
    *before, last = message.content
    if not isinstance(last, TextBlock) or last.text == last.text.rstrip():
        return message
    trimmed = last.model_copy(update={"text": last.text.rstrip()})
    return message.model_copy(update={"content": (*before, trimmed)})


def _message(role: Role, blocks: Sequence[Block]) -> Message:
    return unchecked(Message, role=role, content=tuple(blocks) or (TextBlock(text=NOTHING),))


def _result(told: str, content: tuple[TextBlock, ...], *, is_error: bool) -> ToolResultBlock:
    return unchecked(
        ToolResultBlock, type="tool_result", tool_use_id=told, content=content, is_error=is_error
    )
