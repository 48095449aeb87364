"""Secrets that the library ``detect-secrets`` does not know, or of which it reports a part only.

Each pattern matches all that must not be shown. It begins where no name can go on and repeats
characters without alternatives, so that its time is linear in the text: the texts are a model's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["pattern_spans"]

_TOKENS = (
    r"sk-ant-[\w-]{16,}",  # Anthropic
    r"sk-[A-Za-z0-9_-]{20,}",  # OpenAI, and those who copy it
    r"AIza[\w-]{30,}",  # Google's keys
    r"ya29\.[\w.-]{20,}",  # Google's access tokens
    r"GOCSPX-[\w-]{20,}",  # Google's client secrets
    r"github_pat_\w{20,}",
    r"gh[opsur]_\w{30,}",
    r"glpat-[\w-]{16,}",
    r"hf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"npm_[A-Za-z0-9]{30,}",
    r"xox[a-z]-[\w-]{10,}",  # Slack
    r"[rs]k_(?:live|test)_\w{10,}",  # Stripe
    r"whsec_[\w+/=]{16,}",
    r"SG\.[\w-]{16,}\.[\w-]{16,}",  # SendGrid
    r"eyJ[\w-]{8,}\.[\w-]{8,}[\w.+/=-]*",  # a JSON Web Token, also one that is cut off
)
_NAMES = r"(?:api_?key|access_?key|account_?key|private_?key|secret|token(?!s)|passw(?:or)?d|pwd)"
_PATTERNS = (
    re.compile(rf"(?<![\w-])(?P<secret>{'|'.join(_TOKENS)})"),
    # A whole key in PEM's form; to the end of the text if it has no end.
    re.compile(
        r"(?P<secret>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY.*?(?:-----END [^-]*-----|\Z))", re.DOTALL
    ),
    re.compile(r"\b(?:bearer|basic)[ \t]+(?P<secret>[\w.~+/=-]{16,})", re.IGNORECASE),
    # The password of a URL, with the user's name: postgres://user:password@host
    re.compile(r"(?<=://)(?P<secret>[^\s/:@]{0,256}:[^\s/@]{1,512})@"),
    # password=x, API_KEY=x, --token x; after a colon only what looks like no word.
    re.compile(
        rf"{_NAMES}[\w-]{{0,32}}[\"']?[ \t]{{0,4}}=[ \t]{{0,4}}[\"']?"
        r"(?P<secret>(?!\[REDACTED)[^\s\"',;&()]{4,})",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_NAMES}[\w-]{{0,32}}[\"']?[ \t]{{0,4}}:[ \t]{{0,4}}[\"']?"
        r"(?P<secret>(?=[^\s\"',;()]{0,64}\d)[^\s\"',;()]{6,})",
        re.IGNORECASE,
    ),
)


def pattern_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where secrets begin and end."""
    for pattern in _PATTERNS:
        for match in pattern.finditer(text):
            yield match.span("secret")
