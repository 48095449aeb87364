"""Threads, nodes, results of tools and refs: the data of the conversation tree.

A node never changes. The result of a tool is stored next to the node that called the tool, once for each
``tool_use_id``, so that everything below that node, in any branch, has the same result.

    kind        role        content
    user        user        a message of the user
    assistant   assistant   a reply of the model, tool uses included
    results     user        empty: stands for the results of the tools that were just used
    branch      user        the prompt of a branch that the model has opened
    question    assistant   a tool's question to the user
    answer      user        the user's answer

Questions and answers are nodes between the node that called the tool and the node that follows the
tool's result. A model is not sent them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pydantic import JsonValue

from anabranch.messages import Block, ResultBlock, ToolUseBlock, Usage, text_of

Kind: TypeAlias = Literal["user", "assistant", "results", "branch", "question", "answer"]
"""The kind of a node."""
Role: TypeAlias = Literal["user", "assistant"]
"""The role of a node in messages to a model."""

ROLES: Mapping[Kind, Role] = {
    "user": "user",
    "assistant": "assistant",
    "results": "user",
    "branch": "user",
    "question": "assistant",
    "answer": "user",
}

HEAD = "head"
"""The ref that moves with the conversation; every other ref of a thread is a label."""


SHOWN = "shown"
"""The data key of the text that users see in place of a node's instructions to a model."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation.

    Attributes:
        id: unique and hard to guess.
        created_at: seconds since the epoch.
        system_prompt: the system prompt of every request.
        title: a title for users; may be empty.
        owner: the principal that owns the thread; ``None`` where callers are not distinguished.
    """

    id: str
    created_at: float
    system_prompt: str | None = None
    title: str = ""
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One immutable entry of a thread.

    Attributes:
        id: unique among all threads.
        thread_id: the thread of the node.
        parent_id: the node that it follows; ``None`` for a root.
        kind: one of the kinds above.
        content: the blocks of the node, without results of tools.
        created_at: seconds since the epoch.
        usage: the tokens of the model's reply, if the provider reported them. At ``results`` and
            ``question``, the tokens of the requests that the tools made until then.
        data: values for the node's kind (the model's name; a question's step and schema).
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
        """The role that belongs to the node's kind."""
        return ROLES[self.kind]

    @property
    def text(self) -> str:
        """The text of the node's text blocks, joined."""
        return text_of(self.content)

    @property
    def shown(self) -> str:
        """The text that users see: a short form if the node's text instructs a model."""
        return str(self.data.get(SHOWN, self.text))

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The node's tool use blocks."""
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one tool use, stored at the node that called the tool.

    Attributes:
        node_id: the node that called the tool, or the answer from which the call ran again.
        tool_use_id: the tool use block in the calling node.
        content: the result on every path below ``node_id``.
        is_error: whether the tool failed; about ``pending`` if that is not ``None``.
        pending: the content that replaces ``content`` when the next message follows ``node_id``,
            directly or after questions and answers.
    """

    node_id: str
    tool_use_id: str
    content: tuple[ResultBlock, ...]
    is_error: bool = False
    pending: tuple[ResultBlock, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """A name for a node: ``head``, or a label."""

    name: str
    node_id: str


def check_place(node: Node, parent: Node | None) -> None:
    """Check that ``node`` may follow ``parent``; stores call this for every new node.

    Raises:
        ValueError: if a root is not a user's message, the parent belongs to another thread, or a
            branch follows a node without a tool use.
    """
    if parent is None:
        if node.kind != "user":
            raise ValueError(f"a thread begins with a user's message, not with {node.kind}")
        return
    if parent.thread_id != node.thread_id:
        raise ValueError(f"node {parent.id!r} belongs to thread {parent.thread_id!r}")
    if node.kind == "branch" and not parent.tool_uses:
        raise ValueError(f"a branch opens below the tool use that asked for it, not {parent.id!r}")
