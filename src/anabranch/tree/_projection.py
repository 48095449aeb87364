"""The messages that a provider receives for a path of the tree (law 6 in docs/design.md).

A path's messages are a prefix of a longer path's, which may continue the last: prompt caches hit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from anabranch.messages import (
    NOTHING,
    Block,
    Message,
    ResultBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    unchecked,
)
from anabranch.tree._left_out import left_out_on, without
from anabranch.tree._threads import ASIDE, ROLES, Node, Result, Role

LONGEST = 64
_ACCEPTED = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST}}}")
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST = 8


def wire_name(name: str) -> str:
    """Return ``name`` if providers accept it, else a name that ends in a digest to stay different.

    The result depends on the name alone, so the list of tools and an old conversation agree.
    """
    if _ACCEPTED.fullmatch(name):
        return name
    # A name comes from JSON, where a lone surrogate is legal; UTF-8 cannot encode one.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{_OTHER.sub('_', name)[: LONGEST - _DIGEST - 1]}_{digest}"


Results: TypeAlias = Mapping[tuple[str, str], Result]
"""Results of tools, by the ids of the node that holds the result and of the tool use."""

_Closed: TypeAlias = "tuple[_Closed | None, Message]"
"""A message and the list of the messages before it, which the paths after a fork share."""

NO_RESULT = "The tool was interrupted before it returned anything."
"""Text of the result that is sent for a tool use without one."""
NO_RESULT_CONTENT = (TextBlock(text=NO_RESULT, mark="no_result"),)
"""The content of that result, with a mark, since a tool may return the same text."""


def is_no_result(content: Iterable[Block]) -> bool:
    return any(isinstance(block, TextBlock) and block.mark == "no_result" for block in content)


def is_placeholder(result: Result) -> bool:
    return result.pending is not None and is_no_result(result.pending)


def project(path: Iterable[Node], results: Results) -> tuple[Message, ...]:
    """Return the messages that a provider receives for ``path``.

    ``path`` has the nodes from a root to any node.
    """
    projection, nodes = _Projection(results), tuple(path)
    for node in nodes:
        projection.add(node)
    return without(projection.messages(), left_out_on(nodes))


def provider_blocks(nodes: Iterable[Node], results: Results) -> dict[str, tuple[Block, ...]]:
    """Return the blocks that a provider receives for each node, by id, with the ids that it receives.

    A node has the same blocks on every path. Results are at the beginning of the user's next node.
    """
    below: dict[str | None, list[Node]] = {}
    for node in nodes:
        below.setdefault(node.parent_id, []).append(node)
    blocks: dict[str, tuple[Block, ...]] = {}
    waiting = [(node, _Projection(results)) for node in below.get(None, ())]
    while waiting:
        node, projection = waiting.pop()
        blocks[node.id] = projection.add(node)
        children = below.get(node.id, [])
        waiting += [(other, projection.copy()) for other in children[1:]]
        waiting += [(first, projection) for first in children[:1]]
    return blocks


def placed_blocks(
    path: Iterable[Node], results: Results
) -> Iterator[tuple[Node, tuple[int, int], tuple[Block, ...]]]:
    """Yield the nodes that a provider receives, with their message and block number and blocks."""
    projection = _Projection(results)
    for node in path:
        blocks = projection.add(node)
        if node.kind not in ASIDE:
            yield node, projection.place(blocks), blocks


def project_each(
    path: Iterable[Node], ends: Iterable[Node], results: Results
) -> Iterator[tuple[Message, ...]]:
    """Yield for each of ``ends``, no questions or answers, the messages of ``path`` and that node."""
    shared, nodes = _Projection(results), tuple(path)
    for node in nodes:
        shared.add(node)
    shared.answer()
    places = left_out_on(nodes)
    for end in ends:
        projection = shared.copy()
        projection.add(end)
        yield without(projection.messages(), places)


class _Projection:
    """Builds messages from the nodes of a path; consecutive nodes of one role form one message."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._closed: _Closed | None = None
        self._number = 0  # the number of closed messages
        self._role: Role = "user"
        self._started = False
        self._blocks: list[Block] = []
        self._unanswered: list[tuple[str, str]] = []  # ids of tool uses, as stored and as sent
        self._holders: list[str] = []
        self._ids: dict[str, None] = {}  # shared by copies, in order; the first ones are our own
        self._own_ids = 0

    def copy(self) -> _Projection:
        """Return a copy that shares the earlier messages; use copies depth first, each to its end."""
        copied = _Projection(self._results)
        copied._closed, copied._number = self._closed, self._number
        copied._role, copied._started = self._role, self._started
        copied._blocks = list(self._blocks)
        copied._unanswered = list(self._unanswered)
        copied._holders = list(self._holders)
        copied._ids, copied._own_ids = self._ids, self._own_ids
        return copied

    def add(self, node: Node) -> tuple[Block, ...]:
        kind = node.kind
        if kind in ASIDE:
            self._holders.append(node.id)  # a call may have run again from an answer
            return node.content
        role = ROLES[kind]
        answers = self._turn(role) if role != self._role or self._unanswered else ()
        self._started = True
        if kind == "assistant":
            self._holders = [node.id]
        own = [
            self._named(block) if block.type == "tool_use" else block
            for block in node.content
            if _is_sent(block, role)
        ]
        self._blocks += own
        return (*answers, *own) if role == "user" else tuple(own)

    def place(self, blocks: Sequence[Block]) -> tuple[int, int]:
        return self._number, len(self._blocks) - len(blocks)

    def answer(self) -> None:
        if self._unanswered:
            self._turn("user")

    def messages(self) -> tuple[Message, ...]:
        self.answer()
        self._close()
        if self._closed is None:
            return (_message("user", ()),)
        *before, last = _in_order(self._closed)
        return (*before, _ending(last) if last.role == "assistant" else last)

    def _turn(self, role: Role) -> Sequence[Block]:
        self._close()
        if not self._unanswered:
            self._role = role
            return ()
        answers = [self._result(stored, sent) for stored, sent in self._unanswered]
        self._blocks += answers
        self._unanswered = []
        self._role = "user"
        if role != "user":
            self._close()
            self._role = role
        return answers

    def _close(self) -> None:
        if not self._started and not self._blocks:
            return
        if self._closed is None and self._role == "assistant":
            self._closed, self._number = (None, _message("user", ())), 1
        self._closed = (self._closed, _message(self._role, self._blocks))
        self._number += 1
        self._started, self._blocks = False, []

    def _named(self, block: ToolUseBlock) -> ToolUseBlock:
        while len(self._ids) > self._own_ids:  # ids of a copy that is no longer used
            self._ids.popitem()
        sent, number = wire_name(block.id), 1
        while sent in self._ids:
            number += 1
            suffix = f"_{number}"
            sent = wire_name(block.id)[: LONGEST - len(suffix)] + suffix
        self._ids[sent] = None
        self._own_ids += 1
        self._unanswered.append((block.id, sent))
        name = wire_name(block.name)
        if (sent, name) == (block.id, block.name):
            return block
        return block.model_copy(update={"id": sent, "name": name})

    def _result(self, stored: str, sent: str) -> ToolResultBlock:
        for holder in reversed(self._holders):
            result = self._results.get((holder, stored))
            if result is not None:
                content = tuple(block for block in result.content if _is_sent(block, "user"))
                return _result(
                    sent,
                    content or (TextBlock(text=NOTHING),),
                    is_error=result.is_error and result.pending is None,
                )
        return _result(sent, NO_RESULT_CONTENT, is_error=True)


def _in_order(last: _Closed | None) -> list[Message]:
    messages: list[Message] = []
    while last is not None:
        last, message = last
        messages.append(message)
    messages.reverse()
    return messages


def _is_sent(block: Block, role: Role) -> bool:
    """Return whether a provider receives ``block``; results are stored next to nodes, and inserted."""
    # Compare the type's name: ``isinstance`` of pydantic models takes ten times as long.
    match block.type:
        case "text":
            return bool(block.text.strip())
        case "tool_use":
            return role == "assistant"
        case "tool_result":
            return False
        case "image" | "audio" | "document" | "file":
            return role == "user"


def _ending(message: Message) -> Message:
    """Return an assistant's last message without trailing white space, which providers refuse."""
    *before, last = message.content
    if not isinstance(last, TextBlock) or last.text == last.text.rstrip():
        return message
    trimmed = last.model_copy(update={"text": last.text.rstrip()})
    return message.model_copy(update={"content": (*before, trimmed)})


def _message(role: Role, blocks: Sequence[Block]) -> Message:
    return unchecked(Message, role=role, content=tuple(blocks) or (TextBlock(text=NOTHING),))


def _result(use_id: str, content: tuple[ResultBlock, ...], *, is_error: bool) -> ToolResultBlock:
    return unchecked(
        ToolResultBlock, type="tool_result", tool_use_id=use_id, content=content, is_error=is_error
    )
