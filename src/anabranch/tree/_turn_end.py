"""The end of a turn without a whole reply: an error, or a person's stop, stored where the turn ended.

It is the result of no tool use, at the last node of the turn. So a model is never sent it, and every
store of trees, and every file of a conversation, has it. The next end at that node replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.messages import TextBlock, text_of
from anabranch.tree._nodes import Result
from anabranch.tree._tree_store import Path, Tree, TreeStore

__all__ = ["NO_USE", "TurnEnd", "store_turn_end", "turn_ends_in", "turn_has_ended"]

NO_USE = ""
"""In place of the id of a tool use, of which none is empty."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended.

    Attributes:
        node_id: its last node.
        error: why it failed; ``None`` if a person stopped it.
    """

    node_id: str
    error: str | None


async def store_turn_end(store: TreeStore, end: TurnEnd) -> None:
    """Store the end of a turn.

    Raises:
        StoreError: the store failed.
    """
    failed = end.error is not None
    content = (TextBlock(text=end.error),) if end.error is not None else ()
    await store.set_results([Result(end.node_id, NO_USE, content, is_error=failed)])


def turn_ends_in(tree: Tree) -> list[TurnEnd]:
    """Return the ends of a thread's turns."""
    found = (each for each in tree.results.values() if each.tool_use_id == NO_USE)
    return [
        TurnEnd(each.node_id, text_of(each.content) if each.is_error else None) for each in found
    ]


def turn_has_ended(path: Path) -> bool:
    """Whether a turn ended without a whole reply at the last node of ``path``."""
    return (path.nodes[-1].id, NO_USE) in path.results
