"""A whole thread as JSON, and back: for files that outlive a store.

Owns the form of saved conversations: that of an export, with what only a reader of ours needs
beside it (``data`` of nodes, ``results``). An export without these is read as well; what tools have
returned is then found in the messages that tell it. Files come from anywhere: what does not fit is
refused whole, and ids are given anew, so that a file can be loaded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError

from anabranch.messages import Block, TextBlock, ToolResultBlock, Usage
from anabranch.tree._nodes import HEAD, Kind, Node, Ref, Result, Thread, check_place
from anabranch.tree._tree_store import Tree

__all__ = ["Loaded", "from_json", "to_json"]

Naming: TypeAlias = Callable[[Literal["thread", "node"]], str]
_RESULTS: TypeAdapter[list[Result]] = TypeAdapter(list[Result])


class _Shape(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", allow_inf_nan=False)


class _SavedNode(_Shape):
    id: str
    parent_id: str | None = None
    kind: Kind
    content: tuple[Block, ...]
    label: str | None = None
    usage: Usage | None = None
    created_at: float = 0.0
    data: dict[str, JsonValue] = {}


class _Saved(_Shape):
    thread: str
    title: str = ""
    system_prompt: str | None = None
    refs: dict[str, str] = {}
    nodes: list[_SavedNode]
    results: list[Result] | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was read from a file, under names of its own, not yet in any store."""

    thread: Thread
    nodes: tuple[Node, ...]
    results: tuple[Result, ...]
    refs: tuple[Ref, ...]


def to_json(tree: Tree) -> dict[str, Any]:
    """Return all of a thread as JSON."""
    labels = {node_id: name for name, node_id in tree.refs.items() if name != HEAD}
    return {
        "thread": tree.thread.id,
        "title": tree.thread.title,
        "system_prompt": tree.thread.system_prompt,
        "refs": dict(tree.refs),
        "nodes": [_node_json(node, labels.get(node.id)) for node in tree.nodes],
        "results": _RESULTS.dump_python(list(tree.results.values()), mode="json"),
    }


def from_json(text: bytes, naming: Naming, now: float) -> Loaded:
    """Return the conversation in ``text``, under new names.

    Args:
        text: JSON, as :func:`to_json` or an export wrote it.
        naming: gives the names.
        now: when the thread begins anew, in seconds since the epoch.

    Raises:
        ValueError: it is no conversation; the message says where.
    """
    try:
        saved = _Saved.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{where}: {problem['msg']}" if where else problem["msg"]) from None
    thread = Thread(naming("thread"), now, saved.system_prompt, saved.title)
    names = {node.id: naming("node") for node in saved.nodes}
    nodes = _nodes(saved, thread, names)
    found = saved.results if saved.results is not None else _told(saved)
    results = [replace(each, node_id=_named(names, each.node_id, "a result")) for each in found]
    refs = [Ref(name, _named(names, at, f"ref {name!r}")) for name, at in saved.refs.items()]
    return Loaded(thread, tuple(nodes.values()), tuple(results), tuple(refs))


def _node_json(node: Node, label: str | None) -> dict[str, Any]:
    return {
        "id": node.id,
        "parent_id": node.parent_id,
        "kind": node.kind,
        "role": node.role,
        "content": [block.model_dump(mode="json") for block in node.content],
        "label": label,
        "usage": None if node.usage is None else node.usage.model_dump(mode="json"),
        "created_at": node.created_at,
        "data": dict(node.data),
    }


def _nodes(saved: _Saved, thread: Thread, names: Mapping[str, str]) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for each in saved.nodes:
        if names[each.id] in nodes:
            raise ValueError(f"node {each.id!r} is there twice")
        parent_id = None
        if each.parent_id is not None:
            parent_id = _named(names, each.parent_id, f"node {each.id!r}")
            if parent_id not in nodes:
                raise ValueError(f"node {each.id!r} comes before its parent {each.parent_id!r}")
        content = tuple(block for block in each.content if not isinstance(block, ToolResultBlock))
        data = dict(each.data)
        if each.kind == "question" and "caller" in data:
            data["caller"] = _named(names, str(data["caller"]), f"node {each.id!r}")
        at = each.created_at
        node = Node(names[each.id], thread.id, parent_id, each.kind, content, at, each.usage, data)
        check_place(node, nodes[parent_id] if parent_id is not None else None)
        nodes[node.id] = node
    return nodes


def _named(names: Mapping[str, str], node_id: str, who: str) -> str:
    if node_id not in names:
        raise ValueError(f"{who} points at {node_id!r}, which is not there")
    return names[node_id]


def _told(saved: _Saved) -> list[Result]:
    """Return the results that the user's messages tell, each where it is held."""
    nodes = {node.id: node for node in saved.nodes}
    results: dict[tuple[str, str], Result] = {}
    for node in saved.nodes:
        for block in node.content:
            if isinstance(block, ToolResultBlock):
                holder = _holder(nodes, node, block.tool_use_id)
                text = tuple(part for part in block.content if isinstance(part, TextBlock))
                result = Result(holder, block.tool_use_id, text, block.is_error)
                results.setdefault((holder, block.tool_use_id), result)
    return list(results.values())


def _holder(nodes: Mapping[str, _SavedNode], node: _SavedNode, tool_use_id: str) -> str:
    """Return the caller; or the answer before ``node`` from which the call may have run anew."""
    for above in _above(nodes, node):
        if above.kind in {"answer", "assistant"}:
            return above.id
    raise ValueError(f"node {node.id!r} has a result of {tool_use_id!r}, which nothing has called")


def _above(nodes: Mapping[str, _SavedNode], node: _SavedNode) -> Iterator[_SavedNode]:
    passed: set[str] = set()
    while node.parent_id is not None and node.parent_id in nodes and node.id not in passed:
        passed.add(node.id)
        node = nodes[node.parent_id]
        yield node
