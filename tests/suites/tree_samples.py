"""Sample threads and nodes, and the types of the checks for stores of conversations."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from anabranch.messages import Block, TextBlock, ToolUseBlock
from anabranch.tree import Kind, Node, Result, Thread, TreeStore

OpenTreeStore: TypeAlias = Callable[[], TreeStore]
"""Opens a store of conversations."""

TreeStoreCheck: TypeAlias = Callable[[OpenTreeStore], Awaitable[None]]
"""Checks one promise; raises ``AssertionError`` if it is broken."""


def a_thread(thread_id: str = "t", **changes: Any) -> Thread:
    """Return a thread that began at 100, with ``changes``."""
    return replace(Thread(thread_id, 100.0, "Be brief.", "A trip"), **changes)


def a_node(
    node_id: str,
    parent_id: str | None = None,
    kind: Kind = "user",
    content: tuple[Block, ...] | None = None,
    **changes: Any,
) -> Node:
    """Return a node of thread ``t`` whose text is its name, with ``changes``."""
    blocks = says(node_id) if content is None else content
    return replace(Node(node_id, "t", parent_id, kind, blocks, 101.0), **changes)


def says(text: str) -> tuple[TextBlock]:
    return (TextBlock(text=text),)


def calls_tool(*tool_use_ids: str) -> tuple[ToolUseBlock, ...]:
    return tuple(ToolUseBlock(id=one, name="search", input={"for": one}) for one in tool_use_ids)


def a_result(node_id: str, text: str, *, tool_use_id: str = "use", pending: str = "") -> Result:
    """Return a result; with a text ``pending``, the result has a pending result behind it."""
    return Result(node_id, tool_use_id, says(text), pending=says(pending) if pending else None)


async def begin_caller(store: TreeStore, *tool_use_ids: str) -> None:
    """Begin thread ``t``: node ``a`` has a text, and node ``b`` calls tools."""
    await store.create_thread(a_thread())
    content = calls_tool(*(tool_use_ids or ("use",)))
    await store.append([a_node("a"), a_node("b", "a", "assistant", content)])


def ids_of(nodes: Iterable[Node]) -> str:
    return " ".join(node.id for node in nodes)
