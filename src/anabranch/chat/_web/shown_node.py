"""The fields of a node's ``data`` that the page reads; never the journal of a call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from pydantic import JsonValue

from anabranch.agents import branches_in
from anabranch.tree import LEFT_OUT, SHOWN, Navigator, Node, Tree, refused_blocks, state_of_reply

FIELDS = (
    "model",
    "stop_reason",
    "cost",
    "tool_use_id",
    SHOWN,  # the user's text of a node whose own text is for a model
    "by",  # whether the user called the tool
    "error",  # the reason why a branch failed, or hit a limit
    "step_id",  # of a question, which may be in a branch inside of its tool
    "question",  # the answered question
    "action",
    "left",
    "time_over",
)


def shown_data(node: Node) -> dict[str, JsonValue]:
    own = {name: node.data[name] for name in FIELDS if name in node.data}
    if node.kind == "question" and "kind" in node.data:
        own["asks"] = node.data["kind"]
    if state := state_of_reply(node):
        own["state"] = state
    return own


def shown_in_tree(tree: Tree) -> Iterator[Mapping[str, JsonValue]]:
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
    return {"id": start.id, "description": start.shown}


def interrupted(exported: Mapping[str, Any]) -> list[str]:
    results = (each for each in exported["content"] if each["type"] == "tool_result")
    return [
        each["tool_use_id"]
        for each in results
        if any(one.get("mark") == "no_result" for one in each["content"])
    ]
