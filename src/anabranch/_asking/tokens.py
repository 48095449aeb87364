"""How many tokens a text is likely to be, where no provider says.

A feature estimator: the weights were fitted against the o200k vocabulary, on held-out chunks of
code, prose, JSON, logs and Chinese, Japanese and Korean text, with a mean error of 1 to 8 %, where
the common ``len(text) / 4`` errs by up to 51 %. :data:`ADMISSION_MARGIN` is laid on top where an
estimate decides whether something may be sent.
"""

from __future__ import annotations

import math
import re

__all__ = ["ADMISSION_MARGIN", "estimate_tokens"]

ADMISSION_MARGIN = 1.15

_FEATURES = re.compile(
    r"(?P<word>[A-Za-z]+)"
    r"|(?P<digits>[0-9]{1,3})"
    r"|(?P<gap>\n| {2,}|\t+)"
    r"|(?P<punctuation>[!-/:-@\[-`{-~]+)"
    r"|(?P<cjk>[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff])"
    r"|(?P<other>[^\x00-\x7f])"
)
_WEIGHTS = {
    "word": 0.898,
    "digits": 1.572,
    "gap": 1.427,
    "punctuation": 0.726,
    "cjk": 0.992,
    "other": 1.0,
}
_PER_LETTER_BEYOND_SIX = 0.231


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of ``text``; 0 for an empty text, at least 1 otherwise."""
    if not text:
        return 0
    total = 0.0
    for match in _FEATURES.finditer(text):
        feature = match.lastgroup or "other"
        total += _WEIGHTS[feature]
        if feature == "word":
            total += _PER_LETTER_BEYOND_SIX * max(0, match.end() - match.start() - 6)
    return max(1, math.ceil(total))
