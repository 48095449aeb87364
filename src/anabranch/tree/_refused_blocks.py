"""The blocks of a path that its last reply came without, for display."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.messages import Message, TextBlock, ToolResultBlock
from anabranch.tree._left_out import left_out_on, without
from anabranch.tree._nodes import Node
from anabranch.tree._projection import Results, placed_blocks


@dataclass(frozen=True, slots=True)
class RefusedBlock:
    """A block that a provider has refused.

    Attributes:
        node: the id of the block's node.
        block: the number of the block among the blocks that the provider is sent for the node.
        part: the number in a result of a tool; ``None`` outside of results.
        line: the text that the model was sent in place of the block.
    """

    node: str
    block: int
    part: int | None
    line: str


def refused_blocks(path: Sequence[Node], results: Results) -> Iterator[RefusedBlock]:
    """Yield the blocks that the last node of ``path``, a reply, came without."""
    places = left_out_on(path[-1:])
    for node, (number, first), blocks in placed_blocks(path, results) if places else ():
        for at, block in enumerate(blocks):
            place = (number, first + at)
            parts = block.content if isinstance(block, ToolResultBlock) else (block,)
            for n, part in enumerate(parts):
                inner = n if isinstance(block, ToolResultBlock) else None
                if (place if inner is None else (*place, inner)) in places:
                    [sent] = without([Message(role="user", content=(part,))], [(0, 0)])
                    if isinstance(line := sent.content[0], TextBlock):
                        yield RefusedBlock(node.id, at, inner, line.text)
