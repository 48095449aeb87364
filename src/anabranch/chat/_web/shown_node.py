"""Extra node fields for the page, beside those of the JSON export: a part of a node's ``data``, which holds journals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import JsonValue

from anabranch.agents._branch_states import branches_in
from anabranch.messages import ResultBlock
from anabranch.tree import LEFT_OUT, SHOWN, Navigator, Node, Tree, is_no_result, refused_blocks

FIELDS = (
    "model",
    "stop_reason",
    "cost",
    "tool_use_id",
    SHOWN,  # the text for people of a node whose own is for a model
    "by",  # whether the person called the tool
    "error",  # why a branch has failed, or has reached a limit
    "step_id",  # of a question, which may be in a branch inside of its tool
    "question",  # that an answer answers
    "action",
    "left",
    "time_over",
)


def shown_data(node: Node) -> dict[str, JsonValue]:
    """Return what the page shows of a node's data; of a question, who is asked."""
    asks = {"asks": node.data["kind"]} if node.kind == "question" and "kind" in node.data else {}
    return {**{name: node.data[name] for name in FIELDS if name in node.data}, **asks}


def shown_in_tree(tree: Tree) -> Iterator[Mapping[str, JsonValue]]:
    """Yield that of each node of a thread, in their order.

    A first node of a branch has the branch, and a reply the blocks that its provider refused.
    """
    branches = branches_in(tree)
    walk = Navigator(tree)
    for node in tree.nodes:
        own: dict[str, JsonValue] = {}
        if node.id in branches:
            own["branch"] = asdict(branches[node.id])
        if LEFT_OUT in node.data:
            refused = refused_blocks(walk.path(node.id), tree.results)
            own["refused"] = [asdict(each) for each in refused]
        yield {**shown_data(node), **own}


def named_branch(start: Node) -> dict[str, str]:
    """Return what names a branch in a question of it: its id in events, and its description."""
    return {"id": start.id, "description": start.shown}


def interrupted(exported: Mapping[str, Any]) -> list[str]:
    """Return the tool uses that a node of the export has no result of: they did not end on its path."""
    results = (each for each in exported["content"] if each["type"] == "tool_result")
    return [
        each["tool_use_id"]
        for each in results
        if any(one.get("mark") == "no_result" for one in each["content"])
    ]


def is_interrupted(content: Iterable[ResultBlock]) -> bool:
    """Whether a result says that its tool has none."""
    return is_no_result(content)
