"""A conversation that the store does not take leaves nothing behind."""

import json
from collections.abc import Sequence
from pathlib import Path

from anabranch.errors import StoreError
from anabranch.tree import Node, Ref, Result
from tests.agents.memory import MemoryTrees
from tests.agents.sessions import session, told


class Full(MemoryTrees):
    """A store without space for nodes."""

    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        raise StoreError("No space is left.")


async def test_what_could_not_be_loaded_leaves_no_empty_conversation(tmp_path: Path) -> None:
    node = {"id": "a", "kind": "user", "content": [{"type": "text", "text": "hello"}]}
    file = tmp_path / "saved.json"
    file.write_text(json.dumps({"thread": "t", "nodes": [node]}))
    chat = session(store=Full())
    assert await told(chat, f"/load {file}") == "error: No space is left."
    assert await chat.state.dependencies.store.threads(5) == []
