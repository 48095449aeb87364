"""The words of the main stream: threads, nodes, results of tools, named pointers.

Owns their shapes and what may hang below what. A node never changes once it is there. What a tool
has returned is kept beside the node that called it, once for each ``tool_use_id``, so that all
that follows on that node, in whichever branch, sees the same.

    kind        role        what it is
    user        user        what a person has said
    assistant   assistant   what a model has answered, tool uses included
    results     user        nothing of its own: the results of the tools that were just used
    branch      user        the prompt of a branch that the model has opened
    question    assistant   what a tool asks the person
    answer      user        what the person answers

Questions and answers are part of the tree and not of what a model is told: they hang between the
node that called the tool and whatever follows on its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pydantic import JsonValue

from anabranch.messages import Block, TextBlock, ToolUseBlock, Usage, text_of

__all__ = ["HEAD", "ROLES", "Kind", "Node", "Ref", "Result", "Role", "Thread", "check_place"]

Kind: TypeAlias = Literal["user", "assistant", "results", "branch", "question", "answer"]
Role: TypeAlias = Literal["user", "assistant"]

ROLES: Mapping[Kind, Role] = {
    "user": "user",
    "assistant": "assistant",
    "results": "user",
    "branch": "user",
    "question": "assistant",
    "answer": "user",
}

HEAD = "head"
"""The ref that follows the conversation; every other ref of a thread is a label."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation.

    Attributes:
        id: its name, hard to guess.
        created_at: seconds since the epoch.
        system_prompt: what every model that answers in it is told first.
        title: for people; may be empty.
    """

    id: str
    created_at: float
    system_prompt: str | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One immutable entry of a thread.

    Attributes:
        id: unique among all threads.
        thread_id: the conversation it belongs to.
        parent_id: what it follows on; ``None`` for a beginning.
        kind: see the module.
        content: its own blocks; results of tools are not among them.
        created_at: seconds since the epoch.
        usage: what the model's answer has cost, if it was told; at ``results``, what the tools
            have asked of models aside.
        data: what only its kind needs (the model's name; a question's step and schema).
    """

    id: str
    thread_id: str
    parent_id: str | None
    kind: Kind
    content: tuple[Block, ...]
    created_at: float
    usage: Usage | None = None
    data: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])

    @property
    def role(self) -> Role:
        """Who speaks."""
        return ROLES[self.kind]

    @property
    def text(self) -> str:
        """All its text."""
        return text_of(self.content)

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The tools that it calls."""
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool has returned to the node that called it.

    Attributes:
        node_id: the caller; or the answer from which the call was run anew.
        tool_use_id: the block in the caller that this belongs to.
        content: what every node after ``node_id`` is shown.
        is_error: whether the tool has failed; of what is pending, where something is.
        pending: what takes the place of ``content`` when the next message follows on ``node_id``,
            directly or after questions and answers.
    """

    node_id: str
    tool_use_id: str
    content: tuple[TextBlock, ...]
    is_error: bool = False
    pending: tuple[TextBlock, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """A name for a node: ``head``, or a label."""

    name: str
    node_id: str


def check_place(node: Node, parent: Node | None) -> None:
    """Refuse a node where it cannot hang.

    Raises:
        ValueError: it begins a thread and is not a user's message; or it follows on another
            thread; or it is a branch of something that has called no tool.
    """
    if parent is None:
        if node.kind != "user":
            raise ValueError(f"a thread begins with a user's message, not with {node.kind}")
        return
    if parent.thread_id != node.thread_id:
        raise ValueError(f"node {parent.id!r} belongs to thread {parent.thread_id!r}")
    if node.kind == "branch" and not parent.tool_uses:
        raise ValueError(f"a branch opens below the tool use that asked for it, not {parent.id!r}")
