"""Writes a whole thread to a file as JSON, and reads it, or an export, again.

New ids replace all ids, so one file can be loaded twice. A file may come from anywhere: an invalid
file is refused as a whole, nothing in it is executed, and users see all text that a model is sent.
Questions and answers lose the state of their call, so that no file continues a call.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
)

from anabranch.messages import Block, TextBlock, ToolResultBlock, ToolUseBlock, Usage
from anabranch.tree._export import node_to_json
from anabranch.tree._threads import (
    ASIDE,
    HEAD,
    SHOWN,
    Kind,
    Node,
    Ref,
    Result,
    Thread,
    Tree,
    check_place,
)

NOT_CONTINUED = "The conversation comes from a file: the tool's call is not continued here."
"""The result of a tool use without a result in the file."""

_RESULTS: TypeAdapter[list[Result]] = TypeAdapter(list[Result])


_Digest: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


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
    files: dict[_Digest, Base64Bytes] = {}


@dataclass(frozen=True, slots=True)
class LoadedThread:
    thread: Thread
    nodes: tuple[Node, ...]
    results: tuple[Result, ...]
    refs: tuple[Ref, ...]
    files: Mapping[str, bytes]


def thread_to_json(tree: Tree, files: Mapping[str, bytes] | None = None) -> dict[str, Any]:
    labels = {node_id: name for name, node_id in tree.refs.items() if name != HEAD}
    return {
        "thread": tree.thread.id,
        "title": tree.thread.title,
        "system_prompt": tree.thread.system_prompt,
        "refs": dict(tree.refs),
        "nodes": [
            node_to_json(node, node.content, labels.get(node.id)) | {"data": _data(node)}
            for node in tree.nodes
        ],
        "results": _RESULTS.dump_python(list(tree.results.values()), mode="json"),
        "files": {name: b64encode(data).decode() for name, data in (files or {}).items()},
    }


def thread_from_json(
    text: bytes, new_id: Callable[[Literal["thread", "node"]], str], now: float
) -> LoadedThread:
    """Return the thread in ``text``; a ``ValueError`` names the place of a fault."""
    try:
        saved = _Saved.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{where}: {problem['msg']}" if where else problem["msg"]) from None
    thread = Thread(new_id("thread"), now, saved.system_prompt, saved.title)
    ids = {node.id: new_id("node") for node in saved.nodes}
    nodes = _nodes(saved, thread, ids)
    found = saved.results if saved.results is not None else _results_in_messages(saved)
    results = [replace(each, node_id=_new(ids, each.node_id, "a result")) for each in found]
    results += _closing(nodes, {(each.node_id, each.tool_use_id) for each in results})
    refs = [Ref(name, _new(ids, at, f"ref {name!r}")) for name, at in saved.refs.items()]
    for digest, data in saved.files.items():
        if sha256(data).hexdigest() != digest:
            raise ValueError(f"file {digest!r} has other bytes than its digest says")
    return LoadedThread(thread, tuple(nodes.values()), tuple(results), tuple(refs), saved.files)


def _nodes(saved: _Saved, thread: Thread, ids: Mapping[str, str]) -> dict[str, Node]:
    nodes: dict[str, Node] = {}
    for each in saved.nodes:
        if ids[each.id] in nodes:
            raise ValueError(f"node {each.id!r} occurs twice")
        parent_id = None
        if each.parent_id is not None:
            parent_id = _new(ids, each.parent_id, f"node {each.id!r}")
            if parent_id not in nodes:
                raise ValueError(f"node {each.id!r} comes before its parent {each.parent_id!r}")
        content = tuple(block for block in each.content if not isinstance(block, ToolResultBlock))
        if any(isinstance(block, ToolUseBlock) and not block.id for block in content):
            raise ValueError(f"node {each.id!r} calls a tool, but the call has no id")
        at, data = each.created_at, {k: v for k, v in _data(each).items() if k != SHOWN}
        node = Node(ids[each.id], thread.id, parent_id, each.kind, content, at, each.usage, data)
        check_place(node, nodes[parent_id] if parent_id is not None else None)
        nodes[node.id] = node
    return nodes


def _data(node: Node | _SavedNode) -> dict[str, JsonValue]:
    return {} if node.kind in ASIDE else dict(node.data)


def _closing(nodes: Mapping[str, Node], known: Iterable[tuple[str, str]]) -> list[Result]:
    # Without a result, a loaded tool use would run its tool again.
    text = (TextBlock(text=NOT_CONTINUED),)
    held = {(_caller(nodes, node_id), use_id) for node_id, use_id in known}
    return [
        Result(node.id, use_id, text, is_error=True)
        for node in nodes.values()
        for use_id in dict.fromkeys(use.id for use in node.tool_uses)
        if (node.id, use_id) not in held
    ]


def _caller(nodes: Mapping[str, Node], node_id: str) -> str:
    node = nodes[node_id]
    while node.kind in ASIDE and node.parent_id is not None:
        node = nodes[node.parent_id]
    return node.id


def _new(ids: Mapping[str, str], node_id: str, what: str) -> str:
    if node_id not in ids:
        raise ValueError(f"{what} points at {node_id!r}, which the file lacks")
    return ids[node_id]


def _results_in_messages(saved: _Saved) -> list[Result]:
    nodes = {node.id: node for node in saved.nodes}
    results: dict[tuple[str, str], Result] = {}
    for node in saved.nodes:
        for block in node.content:
            if isinstance(block, ToolResultBlock):
                holder = _holder(nodes, node, block.tool_use_id)
                result = Result(holder, block.tool_use_id, block.content, block.is_error)
                results.setdefault((holder, block.tool_use_id), result)
    return list(results.values())


def _holder(nodes: Mapping[str, _SavedNode], node: _SavedNode, tool_use_id: str) -> str:
    for above in _above(nodes, node):
        if above.kind in {"answer", "assistant"}:
            return above.id
    raise ValueError(f"node {node.id!r} has a result of {tool_use_id!r}, which no node has called")


def _above(nodes: Mapping[str, _SavedNode], node: _SavedNode) -> Iterator[_SavedNode]:
    seen: set[str] = set()
    while node.parent_id is not None and node.parent_id in nodes and node.id not in seen:
        seen.add(node.id)
        node = nodes[node.parent_id]
        yield node
