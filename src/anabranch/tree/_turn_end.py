"""The end of a turn without a whole reply: an error, or a person's stop, stored where the turn ended.

It is the result of no tool use, at the last node of the turn. So a model is never sent it, and every
store of trees, and every file of a conversation, has it. The next end at that node replaces it; when the
turn is tried again, a text that is no error does.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.messages import TextBlock, text_of
from anabranch.tree._nodes import Result
from anabranch.tree._projection import Results
from anabranch.tree._tree_store import Path, Tree, TreeStore

NO_USE = ""
"""In place of the id of a tool use, of which none is empty."""

CLEARED = (TextBlock(text="tried again"),)
"""In place of an error's text, or of none."""


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


async def clear_turn_end(store: TreeStore, node_id: str) -> None:
    """Take the end at a node back, as its turn is tried again.

    Raises:
        StoreError: the store failed.
    """
    await store.set_results([Result(node_id, NO_USE, CLEARED)])


def end_of_turn(node_id: str, results: Results) -> TurnEnd | None:
    """Return how a turn ended at a node, ``None`` if none did."""
    end = results.get((node_id, NO_USE))
    if end is None or (end.content == CLEARED and not end.is_error):
        return None
    return TurnEnd(node_id, text_of(end.content) if end.is_error else None)


def turn_ends_in(tree: Tree) -> list[TurnEnd]:
    """Return the ends of a thread's turns."""
    found = (end_of_turn(name, tree.results) for name, use_id in tree.results if use_id == NO_USE)
    return [each for each in found if each is not None]


def turn_has_ended(path: Path) -> bool:
    """Whether a turn ended without a whole reply at the last node of ``path``."""
    return end_of_turn(path.nodes[-1].id, path.results) is not None
