"""Emphasis in languages without spaces around it, as the chat's terminal reads it."""

# ruff: noqa: RUF001 - the punctuation of these languages

from anabranch.chat._terminal.replies import read_markdown

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


def in_terminal(text: str) -> str:
    """Return ``text`` with tags at the places where a terminal draws emphasis."""
    tags = {"strong": "strong", "em": "em", "s": "del"}
    return "".join(
        f"<{'/' * (each.nesting < 0)}{tags[each.tag]}>" if each.tag in tags else each.content
        for each in read_markdown(text)[1].children or []
    )
