"""A thread as lines of text, one for each node, for a terminal.

Only branches are indented, so that the lines of a long conversation do not move to the right.

    user       node_1  Where to?
    assistant  node_2  [branch_self]
      b1  branch     node_3  Look at Graz.
          assistant  node_4  It has a hill.  (good)
    results    node_5  ← Graz has a hill.
    assistant  node_6  To Graz.  (head)  ← you are here
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from anabranch.messages import Block, TextBlock, ToolResultBlock, text_of
from anabranch.tree._branch_names import name_branches
from anabranch.tree._navigator import Navigator
from anabranch.tree._nodes import HEAD, ROLES, Node
from anabranch.tree._person_view import state_of, text_for_person
from anabranch.tree._projection import provider_blocks
from anabranch.tree._short_ids import short_ids
from anabranch.tree._tree_store import Tree

HERE = "← you are here"
"""Marks the node where the person is."""

WIDTH = 60
"""The default for the length of a node's text, in characters."""

LEAST = 20
"""Characters of a text that are shown on the narrowest terminal, too."""

_KIND = max(map(len, ROLES))


def draw(
    tree: Tree,
    shown: Callable[[Node], bool] = lambda _: True,
    *,
    width: int = WIDTH,
    here: str | None = None,
    columns: int | None = None,
) -> list[str]:
    """Return the lines of a thread.

    Args:
        tree: the thread.
        shown: decides whether a node, and everything below it, is drawn.
        width: the most characters of a node's text.
        here: the id of the node where the person is.
        columns: the width of the terminal, for which texts are cut further.
    """
    ids = short_ids(node.id for node in tree.nodes)
    blocks = provider_blocks(tree.nodes, tree.results) if tree.results else {}
    branches = name_branches(tree.nodes)
    walk = Navigator(tree)
    lines: list[str] = []
    waiting = [(node, "") for node in reversed(walk.children(None))]
    while waiting:
        node, indent = waiting.pop()
        if not shown(node):
            continue
        name = branches.of[node.id]
        heading = f"  {name}  " if branches.opens(node) else ""
        begin = f"{indent}{heading}{node.kind:{_KIND}}  {ids[node.id]}"
        state = state_of(node, walk, tree.results)
        names = ", ".join(names_of(tree, node.id))
        state = state if len(state) <= width else f"{state[: width - 1]}…"
        marks = [state and f"({state})", names and f"({names})", HERE if node.id == here else ""]
        end = [mark for mark in marks if mark]
        room = _room(width, columns, [begin, *end])
        own = blocks.get(node.id, ()) if node.kind == "results" else ()
        text = results_preview(own, room) or preview(node, room)
        lines.append("  ".join([begin, *filter(None, [text]), *end]))
        inside = indent + " " * len(heading)
        children = walk.children(node.id)
        opening = [one for one in children if branches.opens(one)]
        continuing = [one for one in children if not branches.opens(one)]
        # A stack: branches are pushed last, to be drawn before the node that continues.
        waiting += [(one, inside) for one in (*continuing, *reversed(opening))]
    return lines


def _room(width: int, columns: int | None, beside: list[str]) -> int:
    """Return the most characters of a text that stands in a line of ``columns`` with others."""
    if columns is None:
        return width
    return max(LEAST, min(width, columns - len("  ".join([*beside, ""]))))


def local_time(seconds: float) -> str:
    """Return a time as people write it, in this machine's time zone."""
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M}"


def names_of(tree: Tree, node_id: str) -> list[str]:
    """Return the refs that point at a node, the head last."""
    names = [name for name, target in tree.refs.items() if target == node_id]
    return sorted(names, key=lambda name: (name == HEAD, name))


def preview(node: Node, width: int) -> str:
    """Return the beginning of a node's text, on one line, and the tools that it calls."""
    text = " ".join(text_for_person(node).split())
    if len(text) > width:
        text = text[: width - 1].rstrip() + "…"
    return " ".join([text, *(f"[{use.name}]" for use in node.tool_uses)]).strip()


def results_preview(blocks: Iterable[Block], width: int) -> str:
    """Return the beginnings of the results among a node's blocks, on one line; empty without any."""
    texts = [
        text_of([part for part in block.content if isinstance(part, TextBlock)])
        for block in blocks
        if isinstance(block, ToolResultBlock)
    ]
    line = " ".join(f"← {' '.join(text.split())}" for text in texts)
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"
