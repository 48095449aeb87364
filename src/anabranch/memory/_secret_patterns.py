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
    r"v1\.[\w-]{43,}",  # our own: requestState, sagaToken, handles of calls, links to questions
)
_NAMES = (
    r"(?:(?:api|access|account|auth|private)[_-]?key|secret|token(?!s)|passw(?:or)?d|passphrase|passcode|pwd"
    r"|(?:(?<=[_-])|admin|db|ftp|key|mail|my|pg|root|smtp|sql|user)pass(?![a-z]))[\w-]{0,32}"
)


def _secret(characters: str, least: int, before: str = "") -> str:
    """Return the pattern of a secret of such characters; what has been replaced whole is none."""
    return rf"(?P<secret>(?!\[REDACTED\](?!{characters})){before}{characters}{{{least},}})"


_PLAIN = _secret(r"[^\s\"',;&()]", 4)
_WITH_DIGIT = _secret(r"[^\s\"',;()]", 6, r"(?=[^\s\"',;()]{0,64}\d)")


def _quoted(before: str) -> Iterator[re.Pattern[str]]:
    """Yield the patterns of a secret in quotes, which may have blanks, after ``before``."""
    for quote in "\"'":
        secret = _secret(rf"[^{quote}\n]", 4)
        yield re.compile(f"{before % quote}{secret}", re.IGNORECASE)


# A command of curl or HTTPie to the end of its lines, and the options in it that have secrets.
_COMMAND = re.compile(r"\b(?:curl|https?)[ \t](?:[^\n|\\]|\\.)*", re.DOTALL)
_BEFORE = (
    r"[ \t](?:-[A-Za-z]{0,8}[uUa]|--user|--proxy-user|--auth)[ =]?%s[^\s:\"']{1,128}:",
    r"[ \t](?:-[A-Za-z]{0,8}b|--cookie)[ =]?%s[^\s=;,\"']{1,128}=",
)
_OPTIONS = tuple(
    pattern
    for before in _BEFORE
    for pattern in (*_quoted(before), re.compile(before % "" + _secret(r"[^\s\"']", 1)))
)
_PATTERNS = (
    re.compile(rf"(?<![\w-])(?P<secret>{'|'.join(_TOKENS)})"),
    # A whole key in PEM's form; to the end of the text if it has no end.
    re.compile(
        r"(?P<secret>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY.*?(?:-----END [^-]*-----|\Z))", re.DOTALL
    ),
    re.compile(r"\b(?:bearer|basic)[ \t]+(?P<secret>[\w.~+/=-]{16,})", re.IGNORECASE),
    # The password of a URL, with the user's name: postgres://user:password@host
    re.compile(r"(?<=://)(?P<secret>[^\s/:@]{0,256}:[^\s/@]{1,512})@"),
    # Set-Cookie has one cookie and its attributes, Cookie has several.
    re.compile(
        r"set-cookie[\"']?[ \t]*[:=][ \t]*[\"']?[^\s=;,\"']{1,128}=\"?" + _secret(r"[^\s;\"']", 4),
        re.IGNORECASE,
    ),
    re.compile(
        r"(?<![\w-])cookie[\"']?[ \t]*:[ \t]*[\"']?[^\s=;,\"']{1,128}=" + _secret(r"[^\r\n\"']", 4),
        re.IGNORECASE,
    ),
    re.compile(
        r"\bauthorization[\"']?[ \t]*:[ \t]*[\"']?(?P<secret>[\w.~+/=-]{16,})",
        re.IGNORECASE,
    ),
    # password=x, API_KEY=x; after a colon, or an option's name, only what looks like no word.
    *_quoted(rf"{_NAMES}[\"']?[ \t]{{0,4}}[=:][ \t]{{0,4}}%s"),
    re.compile(rf"{_NAMES}[\"']?[ \t]{{0,4}}=[ \t]{{0,4}}[\"']?{_PLAIN}", re.IGNORECASE),
    re.compile(rf"{_NAMES}[\"']?[ \t]{{0,4}}:[ \t]{{0,4}}[\"']?{_WITH_DIGIT}", re.IGNORECASE),
    re.compile(rf"--(?:[\w-]{{0,32}}[_-])?{_NAMES}[ \t]{{1,4}}[\"']?{_WITH_DIGIT}", re.IGNORECASE),
    # A count of tests that pass is no password.
    re.compile(
        rf"(?<![\w-])pass[\"']?[ \t]{{0,4}}=[ \t]{{0,4}}[\"']?(?!\d+\b){_PLAIN}", re.IGNORECASE
    ),
)


def pattern_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield where secrets begin and end."""
    for pattern in _PATTERNS:
        for match in pattern.finditer(text):
            yield match.span("secret")
    for command in _COMMAND.finditer(text):
        for option in _OPTIONS:
            for match in option.finditer(text, *command.span()):
                yield match.span("secret")
