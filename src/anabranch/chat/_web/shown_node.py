"""What a page is sent of a node beside what the JSON export has: a part of its ``data``, which holds journals."""

from __future__ import annotations

from pydantic import JsonValue

from anabranch.tree import Node

__all__ = ["shown_data"]

SHOWN = ("model", "stop_reason", "cost", "tool_use_id")


def shown_data(node: Node) -> dict[str, JsonValue]:
    """Return the model, why it stopped, what it cost, and which use of a tool opened the branch."""
    return {name: node.data.get(name) for name in SHOWN}
