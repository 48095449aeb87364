"""Random conversation trees, wilder than any tree in a real thread.

No case is left out because it should not happen. Nodes of each kind hang below each other, ids of
tool uses repeat, and results are missing, doubled, empty, or held by a node that called no such
tool.
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from hypothesis import strategies as st
from pydantic import JsonValue

from anabranch.messages import (
    AudioBlock,
    Block,
    ImageBlock,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from anabranch.tree import Kind, Node, Result

IDS = ("u1", "u1", "u1", "u1_2", "u2", "call.1/2", "", "ü", "x" * 64, "x" * 65)
NAMES = ("look", "look", "a.b/c", "", "n" * 70)
BLANK = ("", " ", "\n\t", "\u00a0")
PIXEL = "aGk="

texts = st.one_of(
    st.sampled_from(BLANK), st.text(alphabet=string.ascii_letters + " \nüé中", max_size=8)
)
inputs = st.dictionaries(
    st.sampled_from(["at", "q u", "中"]),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | texts,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
        max_leaves=3,
    ),
    max_size=2,
)


@dataclass(frozen=True)
class Thicket:
    """Nodes, parents before children, and their results."""

    nodes: tuple[Node, ...]
    results: Mapping[tuple[str, str], Result]

    def path(self, node: Node) -> tuple[Node, ...]:
        by_id = {each.id: each for each in self.nodes}
        way = [node]
        while way[0].parent_id is not None:
            way.insert(0, by_id[way[0].parent_id])
        return tuple(way)


def _uses() -> st.SearchStrategy[Block]:
    made: st.SearchStrategy[dict[str, JsonValue]] = inputs
    return st.builds(ToolUseBlock, id=st.sampled_from(IDS), name=st.sampled_from(NAMES), input=made)


def _text() -> st.SearchStrategy[Block]:
    return st.builds(TextBlock, text=texts)


def _odd(*, pictures: bool) -> st.SearchStrategy[Block]:
    stray = ToolResultBlock(tool_use_id="u1", content=(TextBlock(text="stray"),))
    image = ImageBlock(data=PIXEL, mime_type="image/png")
    sound = AudioBlock(data=PIXEL, mime_type="audio/wav")
    return st.sampled_from([stray, image, sound] if pictures else [stray])


@st.composite
def thickets(draw: st.DrawFn, *, most: int = 9, pictures: bool = False) -> Thicket:
    """Draw a thicket of up to `most` nodes, with images and audio only if requested."""
    size = draw(st.integers(1, most))
    block = st.one_of(_text(), _text(), _uses(), _uses(), _odd(pictures=pictures))
    nodes: list[Node] = []
    results: dict[tuple[str, str], Result] = {}
    for number in range(size):
        # Mostly the latest node, so that paths grow long; sometimes any node, or none.
        near = st.just(number - 1) if number else st.none()
        parent = draw(st.one_of(near, near, near, st.integers(0, number - 1) if number else near))
        node = Node(
            id=f"n{number}",
            thread_id="t",
            parent_id=None if parent is None else nodes[parent].id,
            kind=draw(st.sampled_from(get_args(Kind))),
            content=tuple(draw(st.lists(block, max_size=4))),
            created_at=float(number),
        )
        nodes.append(node)
        for use in draw(st.lists(st.sampled_from(sorted(set(IDS))), max_size=3, unique=True)):
            said = draw(st.lists(st.builds(TextBlock, text=texts), max_size=2))
            results[node.id, use] = Result(node.id, use, tuple(said), is_error=draw(st.booleans()))
    return Thicket(tuple(nodes), results)
