"""Exports a thread as JSON, Mermaid or Markdown, or draws it with lines for a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from anabranch.messages import (
    Block,
    FileBlock,
    Message,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    text_of,
)
from anabranch.tree._files import file_line, file_lines
from anabranch.tree._finding import Navigator, name_branches, short_ids
from anabranch.tree._left_out import with_reasoning_of_open_turn, without_reasoning
from anabranch.tree._projection import provider_blocks
from anabranch.tree._threads import HEAD, ROLES, SHOWN, Node, Tree
from anabranch.tree._user_view import state_of, text_for_user

HERE = "← you are here"

WIDTH = 60

LEAST = 20
"""Minimum characters shown of a text, also on the narrowest terminal."""

_KIND = max(map(len, ROLES))


def draw(
    tree: Tree,
    shown: Callable[[Node], bool] = lambda _: True,
    *,
    width: int = WIDTH,
    here: str | None = None,
    columns: int | None = None,
) -> list[str]:
    """Return the lines of a drawing of a thread as a tree, for a terminal.

    Args:
        tree: the thread.
        shown: a function that decides whether a node and the nodes below it are drawn.
        width: the maximum characters of a node's text.
        here: the id of the current node, which the drawing marks.
        columns: the width of the terminal; longer lines are cut.
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
        state = state_of(node, walk, tree)
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
    if columns is None:
        return width
    return max(LEAST, min(width, columns - len("  ".join([*beside, ""]))))


def local_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M}"


def names_of(tree: Tree, node_id: str) -> list[str]:
    names = [name for name, target in tree.refs.items() if target == node_id]
    return sorted(names, key=lambda name: (name == HEAD, name))


def preview(node: Node, width: int) -> str:
    text = _shortened(_line(text_for_user(node)), width)
    return " ".join([text, *(f"[{use.name}]" for use in node.tool_uses)]).strip()


def results_preview(blocks: Iterable[Block], width: int) -> str:
    contents = [block.content for block in blocks if isinstance(block, ToolResultBlock)]
    texts = [" ".join([text_of(content), *file_lines(content)]) for content in contents]
    return _shortened(" ".join(f"← {_line(text)}" for text in texts), width)


def _shortened(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 1].rstrip()}…"


SHORT = 40
"""The most characters of a node's text in a diagram."""


def tree_to_json(tree: Tree) -> dict[str, Any]:
    """Return the export of a thread as JSON.

    Each node has the content that a provider receives: tool results are at the beginning of the
    node after the tool calls. The export leaves out reasoning, which only its provider can read.
    """
    blocks = provider_blocks(tree.nodes, tree.results)
    labels = {node_id: name for name, node_id in sorted(tree.refs.items()) if name != HEAD}
    return {
        "thread": tree.thread.id,
        "refs": dict(tree.refs),
        "nodes": [node_to_json(node, blocks[node.id], labels.get(node.id)) for node in tree.nodes],
    }


def node_to_json(node: Node, content: Iterable[Block], label: str | None) -> dict[str, Any]:
    return {
        "id": node.id,
        "parent_id": node.parent_id,
        "kind": node.kind,
        "role": node.role,
        "content": [without_reasoning(block).model_dump(mode="json") for block in content],
        "label": label,
        "usage": None if node.usage is None else node.usage.model_dump(),
        "created_at": node.created_at,
    }


def messages_to_json(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as JSON, with the field names of this library."""
    return [
        {"role": one.role, "content": [block.model_dump(mode="json") for block in one.content]}
        for one in with_reasoning_of_open_turn(messages)
    ]


# -- Mermaid ---------------------------------------------------------------------------------


def to_mermaid(tree: Tree) -> str:
    """Return a thread as a Mermaid flowchart: a box for each node and each ref."""
    branches = name_branches(tree.nodes)
    numbers = {node.id: f"n{number}" for number, node in enumerate(tree.nodes)}
    lines = ["graph TD"]
    for node in tree.nodes:
        text = f"{node.kind}: {preview(node, SHORT)}"
        lines.append(f'    {numbers[node.id]}["{_mermaid(text)}"]')
        if node.parent_id is not None:
            edge = f"-->|{branches.of[node.id]}|" if branches.opens(node) else "-->"
            lines.append(f"    {numbers[node.parent_id]} {edge} {numbers[node.id]}")
    for number, (name, node_id) in enumerate(tree.refs.items()):
        lines.append(f'    r{number}(["{_mermaid(name)}"]) -.-> {numbers[node_id]}')
    return "\n".join(lines) + "\n"


def _mermaid(text: str) -> str:
    return re.sub(r'[#"<>`&\\]', lambda found: f"#{ord(found[0])};", _line(text))


# -- Markdown --------------------------------------------------------------------------------


def to_markdown(tree: Tree) -> str:
    """Return a thread as Markdown: the main branch, then a section for each other branch."""
    branches = name_branches(tree.nodes)
    blocks = provider_blocks(tree.nodes, tree.results)
    sections: dict[str, list[str]] = {"": [f"# {_line(tree.thread.title or tree.thread.id)}"]}
    if tree.thread.system_prompt:
        sections[""].append(_quoted(tree.thread.system_prompt))
    for node in tree.nodes:
        name = branches.of[node.id]
        if branches.opens(node):
            sections[name] = [f'<a id="{_anchor(name)}"></a>', f"## {name}"]
            if node.parent_id is not None:
                sections[branches.of[node.parent_id]].append(f"→ [{name}](#{_anchor(name)})")
        sections[name] += _markdown(tree, node, blocks[node.id])
    order = sorted(sections, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
    return "\n\n".join(part for name in order for part in sections[name]) + "\n"


def _markdown(tree: Tree, node: Node, blocks: Sequence[Block]) -> list[str]:
    names = "".join(f" · {_line(name)}" for name in names_of(tree, node.id))
    parts = [f"**{node.kind}**{names}"]
    if SHOWN in node.data:
        blocks = (TextBlock(text=node.shown),)
    for block in blocks:
        match block:
            case TextBlock():
                parts.append(_quoted(block.text))
            case ToolUseBlock():
                given = block.malformed or json.dumps(block.input, indent=2, ensure_ascii=False)
                parts += [f"calls {_line(block.name)}:", _fenced(given, "json")]
            case ToolResultBlock():
                what = "an error" if block.is_error else "a result"
                text = text_of(one for one in block.content if isinstance(one, TextBlock))
                media = [_media(one) for one in block.content if not isinstance(one, TextBlock)]
                parts += [f"{what}:", _fenced(text), *media]
            case _:
                parts.append(_media(block))
    return parts


def _media(block: Block) -> str:
    return _line(file_line(block)) if isinstance(block, FileBlock) else f"({block.type})"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _fenced(text: str, language: str = "") -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _line(text: str) -> str:
    return " ".join(text.split())


def _anchor(name: str) -> str:
    """Return an id that no heading has: ids of headings have no dots."""
    return f"branch.{name}"
