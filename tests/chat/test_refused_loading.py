"""A conversation that the store refuses to load leaves no thread behind."""

import json
from collections.abc import Sequence
from pathlib import Path

from anabranch.errors import StoreError
from anabranch.tree import Node, Ref, Result
from tests.agents.memory import MemoryTrees
from tests.chat.sessions import session, shown


class Full(MemoryTrees):
    async def append(
        self, nodes: Sequence[Node], *, results: Sequence[Result] = (), refs: Sequence[Ref] = ()
    ) -> None:
        raise StoreError("No space is left.")


async def test_a_conversation_that_cannot_be_loaded_leaves_no_empty_thread(tmp_path: Path) -> None:
    node = {"id": "a", "kind": "user", "content": [{"type": "text", "text": "hello"}]}
    file = tmp_path / "saved.json"
    file.write_text(json.dumps({"thread": "t", "nodes": [node]}))
    chat = session(store=Full())
    assert await shown(chat, f"/load {file}") == "error: No space is left."
    assert await chat.store.threads(5) == []
