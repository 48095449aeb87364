"""The data of the conversation tree (threads, nodes, results, refs), and the protocol of its stores.

A result is stored next to the node that called the tool, so all branches below have the same.

    kind        role        content
    user        user        a message of the user
    assistant   assistant   a reply of the model, tool uses included
    results     user        empty: stands for the results of the tools that were just used
    branch      user        the prompt of a branch that the model has opened
    question    assistant   a tool's question to the user
    answer      user        the user's answer
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeAlias

from pydantic import JsonValue

from anabranch.errors import StoreError
from anabranch.messages import Block, ResultBlock, ToolUseBlock, Usage, text_of

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

ASIDE: frozenset[Kind] = frozenset({"question", "answer"})
"""The kinds of nodes that a provider is not sent: they lie between a tool use and its result."""
NOT_MESSAGES: frozenset[Kind] = frozenset({*ASIDE, "branch"})
"""The kinds that may follow on a node that calls tools without being the next message."""

HEAD = "head"
"""The name of the ref to the thread's current node; all other refs of a thread are labels."""


SHOWN = "shown"
"""The data key of the text that users see in place of a node's instructions to a model."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation: its title, system prompt and owner. The store has its nodes.

    Attributes:
        id: the thread's id, unique and hard to guess.
        created_at: seconds since the epoch.
        system_prompt: the system prompt of every request.
        title: a title for users; may be empty.
        owner: the principal who started the thread; ``None`` if callers are not distinguished.
    """

    id: str
    created_at: float
    system_prompt: str | None = None
    title: str = ""
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """An immutable node of a conversation tree: a message, a question, an answer or tool results.

    Attributes:
        id: the node's id, unique among all threads.
        thread_id: the thread of the node.
        parent_id: the id of the node before this node; ``None`` for a root.
        kind: the kind of the node, such as ``user``, ``assistant`` or ``results``.
        content: the blocks of the node, without results of tools.
        created_at: seconds since the epoch.
        usage: the tokens of the model's reply, if the provider reported them. At ``results`` and
            ``question``, the tokens of the requests that the tools made until then.
        data: further values, by kind: the model's name, or a question's step and schema.
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
        """The role of the node's message, which follows from ``kind``."""
        return ROLES[self.kind]

    @property
    def text(self) -> str:
        """The text of the node's text blocks, joined."""
        return text_of(self.content)

    @property
    def shown(self) -> str:
        """The text to show to users, without instructions that are only for the model."""
        return str(self.data.get(SHOWN, self.text))

    @property
    def tool_uses(self) -> tuple[ToolUseBlock, ...]:
        """The node's tool calls."""
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a tool call, stored at the node that called the tool.

    Attributes:
        node_id: the node that called the tool, or the answer after which the tool ran again.
        tool_use_id: the id of the tool use block in the calling node.
        content: the result on every path below ``node_id``.
        is_error: whether the tool failed, as ``pending`` says if it is set, and else ``content``.
        pending: the content that replaces ``content`` when the next message is added below
            ``node_id``, directly or after questions and answers.
    """

    node_id: str
    tool_use_id: str
    content: tuple[ResultBlock, ...]
    is_error: bool = False
    pending: tuple[ResultBlock, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """A name for a node of a thread: ``head``, or a label."""

    name: str
    node_id: str


def check_place(node: Node, parent: Node | None) -> None:
    """Check that ``node`` may follow ``parent``; stores call this for every new node."""
    if parent is None:
        if node.kind != "user":
            raise ValueError(f"a thread begins with a user's message, not with {node.kind}")
        return
    if parent.thread_id != node.thread_id:
        raise ValueError(f"node {parent.id!r} belongs to thread {parent.thread_id!r}")
    if node.kind == "branch" and not parent.tool_uses:
        raise ValueError(f"a branch follows a node that calls a tool, not {parent.id!r}")


class RefusedError(StoreError):
    """The store refuses a node, result or ref, which breaks a rule of the tree.

    One refused item makes the store refuse the whole append.
    """


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """A record that a turn ended without a complete reply: failed, or stopped by the user.

    Attributes:
        error: the reason for a failure; ``None`` if a user stopped the turn.
    """

    error: str | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """The nodes from a root to one node, and the tool results at these nodes.

    Attributes:
        nodes: the nodes, the root first.
        results: the results, by node id and tool use id.
        ends: failed and stopped turns, by the id of the turn's last node.
    """

    nodes: tuple[Node, ...]
    results: Mapping[tuple[str, str], Result]
    ends: Mapping[str, TurnEnd] = field(default_factory=dict[str, TurnEnd], kw_only=True)


def longer_path(path: Path, nodes: Sequence[Node], results: Sequence[Result] = ()) -> Path:
    longer, held = list(path.nodes), dict(path.results)
    for node in nodes:
        if node.kind not in NOT_MESSAGES:
            _settle(longer, held)
        longer.append(node)
    held |= {(each.node_id, each.tool_use_id): each for each in results}
    return Path(tuple(longer), held, ends=path.ends)


def _settle(path: Sequence[Node], held: dict[tuple[str, str], Result]) -> None:
    answering = list[str]()
    for node in reversed(path):
        answering.append(node.id)
        if node.kind not in ASIDE:
            break
    for key, each in held.items():
        if each.pending is not None and each.node_id in answering:
            held[key] = replace(each, content=each.pending, pending=None)


@dataclass(frozen=True, slots=True)
class Surroundings(Path):
    """The path to a node and the nodes directly below, read in one transaction.

    Attributes:
        thread: the node's thread.
        below: the children by parent id, the oldest first: of the node, and of the questions and
            answers directly before it, up to and including the node before these.
    """

    thread: Thread
    below: Mapping[str, Sequence[Node]]

    @property
    def last(self) -> Node:
        """The node at the end of the path."""
        return self.nodes[-1]


@dataclass(frozen=True, slots=True)
class Tree:
    """A whole thread: nodes, results and refs.

    Parents come before children, and older siblings before younger siblings.
    """

    thread: Thread
    nodes: tuple[Node, ...]
    results: Mapping[tuple[str, str], Result]
    refs: Mapping[str, str] = field(default_factory=dict[str, str])
    ends: Mapping[str, TurnEnd] = field(default_factory=dict[str, TurnEnd])


def surroundings_after(above: Path, thread: Thread, node: Node) -> Surroundings:
    path = longer_path(above, [node])
    return Surroundings(path.nodes, path.results, thread, {node.id: ()}, ends=path.ends)


class TreeStore(Protocol):
    """A store of threads, their nodes and their files.

    A method that raises ``StoreError`` has changed nothing. If two processes add nodes to one
    thread at the same time, no node is lost. Texts are returned exactly as they were
    written. A write survives a crash once its method has returned. An unknown thread or node is an
    error only if the method's description says so.
    """

    async def create_thread(self, thread: Thread) -> None:
        """Add a thread without nodes; an existing id is an error."""
        ...

    async def thread(self, thread_id: str) -> Thread | None:
        """Return the thread, or ``None`` if it does not exist."""
        ...

    async def threads(self, limit: int) -> list[Thread]:
        """Return the latest threads, the newest first."""
        ...

    async def threads_of(self, owner: str | None, limit: int) -> list[Thread]:
        """Return the latest threads of this owner, or those without an owner, the newest first."""
        ...

    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        """Add nodes, set results and move refs, in this order and in one transaction.

        Each sequence may be empty. A result replaces the earlier result of the same node and tool
        use.

        A parent must exist, or come earlier in ``nodes``; :func:`check_place` must allow each
        place; an id must be new. :class:`RefusedError` is raised if a node violates one of these
        rules, or if a result or ref names an unknown node. Any other error means that the store
        cannot write now.

        A new node may follow a node whose results have a ``pending`` content, directly or after
        questions and answers. Then ``pending`` becomes their content, unless the new node is a
        ``branch``, ``question`` or ``answer``. The ``results`` of the same append are set after
        that: their ``pending`` waits for a later message.
        """
        ...

    async def end_turn(self, node_id: str, end: TurnEnd | None) -> None:
        """Record that a turn failed or was stopped at a node; ``None`` removes the record.

        An unknown node is an error.
        """
        ...

    async def set_ref(self, thread_id: str, ref: Ref) -> None:
        """Set a ref to a node of the thread; a node of another thread is an error."""
        ...

    async def delete_ref(self, thread_id: str, name: str) -> bool:
        """Delete a ref; return whether the ref existed."""
        ...

    async def refs(self, thread_id: str) -> dict[str, str]:
        """Return the node id of each ref of the thread, by name, sorted."""
        ...

    async def node(self, node_id: str) -> Node | None:
        """Return the node, or ``None`` if it does not exist."""
        ...

    async def path(self, node_id: str) -> Path:
        """Return the path from the root to a node, read in one statement.

        An unknown node is an error.
        """
        ...

    async def around(self, thread_id: str, node_id: str | None = None) -> Surroundings | None:
        """Return the path to a node of the thread and its children; by default, of the head.

        The store reads them in one statement. Returns ``None`` if the thread does not have the
        node.
        """
        ...

    async def children(self, node_id: str) -> list[Node]:
        """Return the children of a node, the oldest first."""
        ...

    async def beginnings(self, thread_id: str) -> list[Node]:
        """Return the roots of a thread, the oldest first."""
        ...

    async def nodes_after(self, thread_id: str, known: Sequence[Node]) -> list[Node] | None:
        """Return the nodes that were added to a thread since its nodes were ``known``.

        ``known`` has all nodes of the thread at an earlier time. The result is in the order of a
        :class:`Tree`, or ``None`` if known nodes were deleted. The store only counts the known
        nodes, so the result may lack a node that was deleted and added again with the same id.
        """
        ...

    async def tree(self, thread_id: str) -> Tree:
        """Return a whole thread; an unknown thread is an error."""
        ...

    async def delete_thread(self, thread_id: str) -> bool:
        """Delete a thread with all its nodes and files; return whether the thread existed."""
        ...

    async def delete_subtree(self, node_id: str) -> int:
        """Delete a node, all nodes below and their refs; return the number of deleted nodes.

        The store also deletes the files to which only these nodes and their results refer.
        """
        ...

    async def add_files(self, thread_id: str, files: Mapping[str, bytes]) -> None:
        """Store files of a thread, each under its SHA-256 in hexadecimal.

        A file that the thread has already stays unchanged. An unknown thread is an error.
        """
        ...

    async def files(self, thread_id: str, digests: Collection[str]) -> dict[str, bytes]:
        """Return the thread's files with these ``digests``."""
        ...

    async def close(self) -> None:
        """Close connections and files; a second call does nothing. Afterwards, other methods raise."""
        ...
