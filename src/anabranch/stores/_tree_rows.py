"""Converts threads, nodes and results to rows of their tables, and rows back to records, in bulk.

Converting one node at a time costs several times as much.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, repeat
from operator import itemgetter
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from anabranch.errors import StoreError
from anabranch.messages import Block, ResultBlock, Usage
from anabranch.stores._sql import Row, optional_bytes, optional_text, to_bytes, to_text
from anabranch.tree import ASIDE, Node, Path, Ref, Result, Surroundings, Thread, TurnEnd, digests_in

T = TypeVar("T")

_SEQ, _ID, _END = 0, 2, 8
_PER_NODE = 11
"""The number of a node's columns in a path's row; the result's columns follow."""
_THREAD_END = 15
"""The end of the thread's columns in a row of surroundings; the result's columns follow."""

_CONTENT: TypeAdapter[tuple[Block, ...]] = TypeAdapter(tuple[Block, ...])
_CONTENTS: TypeAdapter[tuple[tuple[Block, ...], ...]] = TypeAdapter(tuple[tuple[Block, ...], ...])
_RESULTS: TypeAdapter[tuple[tuple[ResultBlock, ...], ...]] = TypeAdapter(
    tuple[tuple[ResultBlock, ...], ...]
)
_PENDINGS: TypeAdapter[tuple[tuple[ResultBlock, ...] | None, ...]] = TypeAdapter(
    tuple[tuple[ResultBlock, ...] | None, ...]
)
_USAGES: TypeAdapter[tuple[Usage | None, ...]] = TypeAdapter(tuple[Usage | None, ...])


def thread_row(thread: Thread) -> dict[str, Any]:
    return {
        "id": to_bytes(thread.id),
        "created_at": thread.created_at,
        "system_prompt": optional_bytes(thread.system_prompt),
        "title": to_bytes(thread.title),
        "owner": optional_bytes(thread.owner),
    }


def to_thread(row: Row) -> Thread:
    thread_id, created_at, system_prompt, title, owner = row
    return Thread(
        to_text(thread_id),
        created_at,
        optional_text(system_prompt),
        to_text(title),
        optional_text(owner),
    )


def ref_row(ref: Ref) -> dict[str, Any]:
    return {"new_name": to_bytes(ref.name), "node_id": to_bytes(ref.node_id)}


def node_row(node: Node) -> dict[str, Any]:
    return {
        "thread_id": to_bytes(node.thread_id),
        "parent_id": optional_bytes(node.parent_id),
        "new_id": to_bytes(node.id),
        "new_kind": node.kind,
        "new_content": _blocks(node.content),
        "new_created_at": node.created_at,
        "new_usage": None if node.usage is None else node.usage.model_dump_json().encode(),
        "new_data": json.dumps(dict(node.data)).encode() if node.data else None,
    }


def result_row(result: Result) -> dict[str, Any]:
    return {
        "node_id": to_bytes(result.node_id),
        "new_tool_use_id": to_bytes(result.tool_use_id),
        "new_content": _blocks(result.content),
        "new_is_error": result.is_error,
        "new_pending": None if result.pending is None else _blocks(result.pending),
    }


def to_nodes(
    rows: Sequence[Row], thread_id: str, parents: Mapping[int, str] | None = None
) -> list[Node]:
    """Return the nodes in the order of ``rows``, which begin with the columns of a node.

    ``parents`` has the ids, by number, of parents that are not among the rows.
    """
    if not rows:
        return []
    # Column by column: a loop over rows would take as long as parsing all the JSON.
    seqs, above, raw_ids, kinds, contents, times, usages, data = islice(zip(*rows, strict=True), 8)
    ids = dict(zip(seqs, map(to_text, raw_ids), strict=True))
    known = {**(parents or {}), **ids}
    return list(
        map(
            Node,
            ids.values(),
            repeat(thread_id),
            [None if parent is None else known[parent] for parent in above],
            kinds,
            _read(_CONTENTS, contents),
            times,
            _read(_USAGES, [usage or b"null" for usage in usages]),
            [{} if text is None else json.loads(text) for text in data],
        )
    )


def to_ends(rows: Iterable[Row]) -> dict[str, TurnEnd]:
    """Return the ends of turns in rows of nodes, by the id of the node."""
    return {to_text(row[_ID]): TurnEnd(optional_text(row[_END + 1])) for row in rows if row[_END]}


def to_path(rows: Iterable[Row]) -> Path:
    ordered = sorted(rows, key=itemgetter(_SEQ))  # a parent's number is smaller
    of_nodes = list({row[_SEQ]: row for row in ordered}.values())
    nodes = to_nodes(of_nodes, to_text(of_nodes[0][_PER_NODE - 1]))
    held = [(row[_ID], *row[_PER_NODE:]) for row in ordered if row[_PER_NODE] is not None]
    return Path(tuple(nodes), to_results(held), ends=to_ends(of_nodes))


def to_surroundings(rows: Sequence[Row]) -> Surroundings:
    """Return the surroundings of a node, from rows of its path and of the nodes below."""
    path = to_path([(*row[:_PER_NODE], *row[_THREAD_END:-1]) for row in rows if not row[-1]])
    found = sorted((row for row in rows if row[-1]), key=itemgetter(_SEQ))
    parents = {row[_SEQ]: to_text(row[_ID]) for row in rows if not row[-1]}
    [first] = {row[_PER_NODE - 1 : _THREAD_END] for row in rows if row[_PER_NODE] is not None}
    thread = to_thread(first)
    below: dict[str, list[Node]] = {}
    for node in reversed(path.nodes):
        below[node.id] = []
        if node.kind not in ASIDE:
            break
    for child in to_nodes(found, thread.id, parents):
        below[child.parent_id or ""].append(child)
    return Surroundings(path.nodes, path.results, thread, below, ends=path.ends)


def to_results(rows: Sequence[Row]) -> dict[tuple[str, str], Result]:
    """Return results by the ids of node and tool use; each row has the node's id and the result."""
    if not rows:
        return {}
    raw_holders, raw_ids, contents, errors, pendings = zip(*rows, strict=True)
    holders, tool_use_ids = list(map(to_text, raw_holders)), list(map(to_text, raw_ids))
    results = map(
        Result,
        holders,
        tool_use_ids,
        _read(_RESULTS, contents),
        map(bool, errors),
        _read(_PENDINGS, [pending or b"null" for pending in pendings]),
    )
    return dict(zip(zip(holders, tool_use_ids, strict=True), results, strict=True))


def digests_of(contents: Iterable[bytes]) -> set[str]:
    """Return the digests of the files to which stored contents refer."""
    # Most contents refer to no file, and parsing takes long. A text quotes the key with backslashes.
    found = _read(_CONTENTS, [each for each in contents if b'"digest"' in each])
    return digests_in(found)


def _blocks(content: tuple[Block, ...]) -> bytes:
    try:
        return _CONTENT.dump_json(content)
    except PydanticSerializationError:  # a lone surrogate, which a model's JSON may hold
        return json.dumps(_CONTENT.dump_python(content)).encode()


def _read(adapter: TypeAdapter[tuple[T, ...]], texts: Sequence[bytes]) -> tuple[T, ...]:
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
