"""Markdown read as CommonMark, with emphasis in Chinese, Japanese and Korean.

These languages have no spaces around emphasis. CommonMark takes the stars of ``**「注意」**请`` for text,
since punctuation is inside them and a letter outside (commonmark-spec#650).
"""

from __future__ import annotations

import re
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Scanned
from markdown_it.token import Token

_IS_CJK: Final = re.compile(
    "[\u1100-\u11ff\u2e80-\u2fdf\u3001-\u312f\u3131-\u318f\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
)


class _State(StateInline):
    def scanDelims(self, start: int, canSplitWord: bool) -> Scanned:  # noqa: N802, N803, FBT001 - overrides
        """Return whether a run of stars opens or closes, at letters of these languages in any place."""
        found = super().scanDelims(start, canSplitWord)
        end = start + found.length
        before, after = self.src[start - 1 : start], self.src[end : end + 1]
        if self.src[start] == "_":
            return found
        opens = bool(_IS_CJK.match(before)) and bool(after.strip())
        closes = bool(_IS_CJK.match(after)) and bool(before.strip())
        return Scanned(found.can_open or opens, found.can_close or closes, found.length)


class _Inline(ParserInline):
    def parse(self, src: str, md: MarkdownIt, env: Any, tokens: list[Token]) -> list[Token]:  # noqa: ANN401 - overrides
        state = _State(src, md, env, tokens)
        self.tokenize(state)
        for rule in self.ruler2.getRules(""):
            rule(state)
        return state.tokens


def read_markdown(text: str) -> list[Token]:
    """Return the tokens of ``text``, with tables and strikethrough."""
    parser = MarkdownIt()
    parser.inline = _Inline()
    return parser.enable("strikethrough").enable("table").parse(text)
