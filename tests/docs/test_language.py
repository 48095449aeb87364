"""The language of pages, docstrings and test names: a noun or a verb opens each sentence.

A sentence that opens with What, Who or It leaves the reader to find its noun. CONTRIBUTING.md has the
rules.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from tests.docs.pages import PAGES, ROOT

DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

PRONOUN = re.compile(r"(What|Who|Where|That|Those|Of|How|It)\b")
RAISED = re.compile(r"(if )?(it|they|one|these|those|see|what)\b", re.IGNORECASE)
RAISES = re.compile(r"^Raises:\n((?:[ ]{4,}.*(?:\n|$)|\n)+)", re.MULTILINE)
ERROR = re.compile(r"^ {4}[\w.]+(?:, [\w.]+)*: (.*)$", re.MULTILINE)
GENERATED = {"api.md", "commands.md"}
SENTENCE = re.compile(
    r"(?:^|(?<=[.!?] )|(?<=^- )|(?<=\*\* ))(?:What|Who|Where|That|Those|Of|It|They)\b.*"
)
ARGUMENT = re.compile(r"^ {4}\w+: (?:what|how|who|whose|where)\b.*", re.MULTILINE)
NAMED = re.compile(r"\btest_\w+")
TEST = re.compile(r"^\s*(?:async )?def (test_\w*)", re.MULTILINE)


@cache
def docstrings() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                line = 1 if isinstance(node, ast.Module) else node.lineno
                found.append((f"{path.relative_to(ROOT)}:{line}", text))
    return found


def returning_what() -> Iterator[str]:
    for place, text in docstrings():
        if text.startswith("Return what"):
            yield f"{place}: {text.partition(chr(10))[0]}"


def opening_with_a_pronoun() -> Iterator[str]:
    for place, text in docstrings():
        if PRONOUN.match(text):
            yield f"{place}: {text.partition(chr(10))[0]}"


def raising_a_pronoun() -> Iterator[str]:
    for place, text in docstrings():
        for section in RAISES.findall(text):
            yield from (f"{place}: {why}" for why in ERROR.findall(section) if RAISED.match(why))


def opening_a_sentence_with_a_pronoun() -> Iterator[str]:
    for page in PAGES:
        text = re.sub(
            r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
        )
        for paragraph in re.split(r"\n\s*\n|\n(?=\||- |\d+\. )", text):
            if page.name not in GENERATED and (
                found := SENTENCE.search(" ".join(paragraph.split()))
            ):
                yield f"{page.name}: {found[0][:70]}"


def describing_an_argument_by_a_pronoun() -> Iterator[str]:
    for place, text in docstrings():
        yield from (f"{place}: {described.strip()}" for described in ARGUMENT.findall(text))


def naming_what_or_who() -> Iterator[str]:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for name in TEST.findall(path.read_text(encoding="utf-8")):
            if {"what", "who"} & set(name.split("_")):
                yield f"{path.relative_to(ROOT)}: {name}"


def test_the_engines_comments_name_tests_that_exist() -> None:
    named = {
        name
        for path in (ROOT / "src/anabranch/_engine").glob("*.py")
        for name in NAMED.findall(path.read_text(encoding="utf-8"))
    }
    exist = {
        name
        for path in (ROOT / "tests").glob("engine*/test_*.py")
        for name in TEST.findall(path.read_text(encoding="utf-8"))
    }
    assert not named - exist


FAULTS = (
    returning_what,
    opening_with_a_pronoun,
    opening_a_sentence_with_a_pronoun,
    raising_a_pronoun,
    describing_an_argument_by_a_pronoun,
    naming_what_or_who,
)


@pytest.mark.parametrize("faults", FAULTS)
def test_pages_docstrings_and_test_names_have_no_fault(faults: Callable[[], Iterator[str]]) -> None:
    assert list(faults()) == []
