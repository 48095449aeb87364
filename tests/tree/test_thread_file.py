"""What is no conversation is refused when it is read, before any store has seen it."""

import json
from typing import Any

import pytest

from anabranch.agents import random_names
from anabranch.tree import thread_from_json


def saved(**changes: Any) -> bytes:
    node = {"id": "a", "kind": "user", "content": [{"type": "text", "text": "hello"}], **changes}
    return json.dumps({"thread": "t", "nodes": [node]}).encode()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_time_that_is_no_number_is_refused(number: str) -> None:
    """A database takes it for none, and refuses the node for that."""
    text = saved(created_at=0.0).replace(b"0.0", number.encode())
    with pytest.raises(ValueError, match=r"nodes\.0\.created_at"):
        thread_from_json(text, random_names, 1.0)
