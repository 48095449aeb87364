"""What nodes and results look like in their tables, and what rows look like as nodes.

Owns the form of stored blocks: JSON, as pydantic writes it. Rows are read in bulk, since a node
by itself costs several times as much. Nothing here talks to a database.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from anabranch.call.store import StoreError
from anabranch.messages import Block, TextBlock, Usage
from anabranch.stores.columns import to_bytes, to_text
from anabranch.stores.direct import Row
from anabranch.tree.nodes import Node, Result

__all__ = ["node_row", "result_row", "to_nodes", "to_path", "to_results"]

T = TypeVar("T")

_SEQ, _PARENT = 0, 1
_PER_NODE = 9
"""So many columns of a path's row are the node's; those of its result come after."""

_CONTENT: TypeAdapter[tuple[Block, ...]] = TypeAdapter(tuple[Block, ...])
_CONTENTS: TypeAdapter[tuple[tuple[Block, ...], ...]] = TypeAdapter(tuple[tuple[Block, ...], ...])
_TEXTS: TypeAdapter[tuple[tuple[TextBlock, ...], ...]] = TypeAdapter(
    tuple[tuple[TextBlock, ...], ...]
)
_USAGES: TypeAdapter[tuple[Usage, ...]] = TypeAdapter(tuple[Usage, ...])


def node_row(node: Node) -> dict[str, Any]:
    """Return the values of the statement that adds a node, as the driver takes them."""
    return {
        "thread_id": to_bytes(node.thread_id),
        "parent_id": None if node.parent_id is None else to_bytes(node.parent_id),
        "new_id": to_bytes(node.id),
        "new_kind": node.kind,
        "new_content": _blocks(node.content),
        "new_created_at": node.created_at,
        "new_usage": None if node.usage is None else node.usage.model_dump_json().encode(),
        "new_data": json.dumps(dict(node.data)).encode() if node.data else None,
    }


def result_row(result: Result) -> dict[str, Any]:
    """Return the values of the statement that sets a result."""
    return {
        "node_id": result.node_id,
        "new_tool_use_id": result.tool_use_id,
        "new_content": _blocks(result.content),
        "new_is_error": result.is_error,
        "new_pending": None if result.pending is None else _blocks(result.pending),
    }


def to_nodes(
    rows: Sequence[Row], thread_id: str, parents: Mapping[int, str] | None = None
) -> list[Node]:
    """Return the nodes in the order of ``rows``.

    Args:
        rows: each with the node's columns first.
        thread_id: the thread that all of them belong to.
        parents: ids by number; of parents that are not among the rows.

    Raises:
        StoreError: a row does not hold a node.
    """
    ids = {**(parents or {}), **{row[_SEQ]: to_text(row[2]) for row in rows}}
    contents = _read(_CONTENTS, [row[4] for row in rows])
    usages = iter(_read(_USAGES, [row[6] for row in rows if row[6] is not None]))
    return [
        Node(
            ids[seq],
            thread_id,
            None if parent is None else ids[parent],
            kind,
            content,
            created_at,
            None if usage is None else next(usages),
            {} if data is None else json.loads(data),
        )
        for (seq, parent, _, kind, _, created_at, usage, data, *_), content in zip(
            rows, contents, strict=True
        )
    ]


def to_path(rows: Iterable[Row]) -> tuple[tuple[Node, ...], dict[tuple[str, str], Result]]:
    """Return a path's nodes in order, and the results that any of them holds."""
    ordered = sorted(rows, key=lambda row: row[_SEQ])  # a parent's number is smaller
    of_nodes = list({row[_SEQ]: row for row in ordered}.values())
    nodes = to_nodes(of_nodes, to_text(of_nodes[0][_PER_NODE - 1]))
    ids = {row[_SEQ]: node.id for row, node in zip(of_nodes, nodes, strict=True)}
    held = [row for row in ordered if row[_PER_NODE] is not None]
    return tuple(nodes), to_results([(ids[row[_SEQ]], *row[_PER_NODE:]) for row in held])


def to_results(rows: Sequence[Row]) -> dict[tuple[str, str], Result]:
    """Return results by holder and tool use, from rows of the holder's id and theirs.

    Raises:
        StoreError: a row does not hold a result.
    """
    contents = _read(_TEXTS, [row[2] for row in rows])
    pendings = iter(_read(_TEXTS, [row[4] for row in rows if row[4] is not None]))
    results: dict[tuple[str, str], Result] = {}
    for (holder, raw_id, _, is_error, pending), content in zip(rows, contents, strict=True):
        tool_use_id = to_text(raw_id)
        later = None if pending is None else next(pendings)
        results[holder, tool_use_id] = Result(holder, tool_use_id, content, bool(is_error), later)
    return results


def _blocks(content: tuple[Block, ...]) -> bytes:
    try:
        return _CONTENT.dump_json(content)
    except PydanticSerializationError:  # a lone surrogate, which a model's JSON may well hold
        return json.dumps(_CONTENT.dump_python(content)).encode()


def _read(adapter: TypeAdapter[tuple[T, ...]], texts: list[bytes]) -> tuple[T, ...]:
    text = b"[%s]" % b",".join(texts)
    try:
        return adapter.validate_json(text)
    except ValueError:
        pass  # the quick reader takes no lone surrogates; the thorough one does
    try:
        return adapter.validate_python(json.loads(text))
    except ValueError as error:
        raise StoreError(
            "The store holds a node that this release cannot read; use the release that wrote it,"
            " or restore the store from a copy."
        ) from error
