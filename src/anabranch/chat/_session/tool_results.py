"""Results of tools as a person reads them in a terminal, which shows text alone."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.messages import ResultBlock, TextBlock, text_of
from anabranch.tree import is_no_result


def result_text(content: Iterable[ResultBlock]) -> str:
    """Return the text of a result; for what is no text, and for no result, words that say so."""
    blocks = list(content)
    if is_no_result(blocks):
        return "(stopped before it returned anything)"
    media = [f"({block.type})" for block in blocks if not isinstance(block, TextBlock)]
    return "\n".join(filter(None, [text_of(blocks), *media]))
