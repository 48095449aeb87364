"""A file that is no valid conversation is refused when it is read, before it reaches a store."""

import json
from typing import Any

import pytest

from anabranch.agents import random_names
from anabranch.tree import thread_from_json


def saved(**changes: Any) -> bytes:
    node = {"id": "a", "kind": "user", "content": [{"type": "text", "text": "hello"}], **changes}
    return json.dumps({"thread": "t", "nodes": [node]}).encode()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_time_other_than_a_number_is_refused(number: str) -> None:
    """A database would take such a time for a missing one, and refuse the node."""
    text = saved(created_at=0.0).replace(b"0.0", number.encode())
    with pytest.raises(ValueError, match=r"nodes\.0\.created_at"):
        thread_from_json(text, random_names, 1.0)


def test_a_model_receives_the_same_text_of_a_file_as_users_see() -> None:
    """The rule excludes a message that users see as harmless and models read with other words."""
    loaded = thread_from_json(saved(data={"shown": "Nice weather."}), random_names, 1.0)
    assert [node.shown for node in loaded.nodes] == ["hello"]


def test_a_call_of_a_tool_without_an_id_is_refused() -> None:
    """Its result would be taken for the end of a turn."""
    call: dict[str, Any] = {"type": "tool_use", "id": "", "name": "look", "input": {}}
    reply: dict[str, Any] = {"id": "b", "parent_id": "a", "kind": "assistant", "content": [call]}
    nodes: list[Any] = [*json.loads(saved())["nodes"], reply]
    with pytest.raises(ValueError, match=r"node 'b' calls a tool, but the call has no id"):
        thread_from_json(json.dumps({"thread": "t", "nodes": nodes}).encode(), random_names, 1.0)
