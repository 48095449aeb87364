"""One word for one thing, as the table of ``docs/glossary.md`` has it.

The table gives each word the words that are not used in its place. The test looks for these, as whole
words, where users read: in the pages without their code, in public names, in the docstrings of public
names, in error messages, and in the sentences of the page that `anabranch web` serves. The help of the
commands is one of the pages.
"""

import ast
import re
from collections.abc import Iterator

from tests.api.reference import reference_pages
from tests.api.surface import entries
from tests.docs.pages import PAGES, ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
ROW = re.compile(r"^\| \*\*(.+?)\*\* \| .+ \| (.+) \|$", re.MULTILINE)


def replaced() -> dict[str, str]:
    """Return the word to use for each word that is not used."""
    table = GLOSSARY.read_text(encoding="utf-8").partition("## All words")[0]
    return {old: word for word, olds in ROW.findall(table) for old in olds.split(", ")}


def read_by_users() -> Iterator[tuple[str, str, str]]:
    """Yield the kind, the place and the text of everything that users read."""
    for page in (*PAGES, ROOT / "CONTRIBUTING.md"):
        text = page.read_text(encoding="utf-8")
        if page == GLOSSARY:
            text = text.partition("## All words")[2]
        yield "pages", page.name, without_code(text)
    for entry in entries():
        yield "public names", entry.name, " ".join(words_of(entry.name))
    for module, text in reference_pages().items():
        yield "docstrings", module, without_code(re.sub(r"(?m)^(?: {4}|#).*$", "", text))
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise):
                yield "errors", f"{path.name}:{node.lineno}", " ".join(texts_in(node))
    for path in sorted((ROOT / "src/anabranch/chat/_web/page").glob("*.mjs")):
        strings = re.findall(r'"(?:[^"\\\n]|\\.)*"', path.read_text(encoding="utf-8"))
        yield "the page", path.name, " ".join(each for each in strings if " " in each)


def without_code(text: str) -> str:
    """Return a page's text without its code, comments and the targets of its links."""
    return re.sub(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", " ", text, flags=re.DOTALL)


def words_of(name: str) -> list[str]:
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def texts_in(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def test_users_read_one_word_for_one_thing() -> None:
    instead = replaced()
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, instead))})\b", re.IGNORECASE)
    problems: list[str] = []
    for kind, place, text in read_by_users():
        for match in pattern.finditer(" ".join(text.split())):
            around = match.string[max(0, match.start() - 30) : match.end() + 30]
            problems.append(f"{kind}, {place}: …{around}…: write {instead[match[1].lower()]!r}")
    assert problems == []


def test_a_word_is_found_as_a_whole_and_only_outside_of_code() -> None:
    assert words_of("ToolSource.offered_tools") == ["tool", "source", "offered", "tools"]
    assert "person" not in without_code("the `person` of [a page](person.md)\n```\nperson\n```")
    assert replaced()["person"] == "user"
