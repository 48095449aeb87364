"""Bearer tokens and headers, as the options of a command give them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from anabranch._terminal import UsageError

SHORTEST = 16
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.~+/-]+=*")
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def read_tokens(text: str | None) -> tuple[str, ...]:
    """Return the tokens in ``text``, which are separated by commas.

    Raises:
        UsageError: if a token is short, or has characters that a header cannot carry.
    """
    tokens = tuple(each for each in (text or "").split(",") if each)
    for each in tokens:
        if len(each) < SHORTEST:
            raise UsageError(
                f"A token has at least {SHORTEST} characters. Make one: openssl rand -hex 32"
            )
        if not _TOKEN.fullmatch(each):
            raise UsageError("A token consists of letters, digits and -._~+/ (and = at its end).")
    return tokens


def headers_of(token: str | None, lines: Iterable[str]) -> dict[str, str]:
    """Return the headers of a client's requests, given as ``Name: value``.

    Raises:
        UsageError: if a text is no header.
    """
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not (colon and _NAME.fullmatch(name) and value.isprintable() and value.isascii()):
            raise UsageError(f"{name!r} begins no header. Write --header 'Name: value'.")
        headers[name] = value.strip()
    if token is not None:
        (only,) = read_tokens(token) or ("",)
        headers["Authorization"] = f"Bearer {only}"
    return headers
