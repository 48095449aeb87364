"""The values of options: tokens, headers, variables, limits and the store, read from the texts given.

Each function refuses an invalid text, and names its option.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from platformdirs import user_data_path

from anabranch._terminal import UsageError

if TYPE_CHECKING:
    from anabranch._budget import Limits

SHORTEST = 16
_TOKEN: Final = re.compile(r"[A-Za-z0-9_.~+/-]+=*")
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def read_tokens(text: str | None) -> tuple[str, ...]:
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
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not (colon and _NAME.fullmatch(name) and value.isprintable() and value.isascii()):
            raise UsageError(f"{name!r} is not a header. Write --header 'Name: value'.")
        headers[name] = value.strip()
    if token is not None:
        (only,) = read_tokens(token) or ("",)
        headers["Authorization"] = f"Bearer {only}"
    return headers


def limits_of(max_tokens: int | None, max_depth: int | None, timeout: float | None) -> Limits:
    from anabranch._budget import Limits

    given = {"--max-tokens": max_tokens, "--max-depth": max_depth, "--timeout": timeout}
    for option, value in given.items():
        if value is not None and not 0 <= value < math.inf:
            raise UsageError(f"{option} must be a number from 0 up, not {value:g}.")
    return Limits(max_depth=max_depth, max_tokens=max_tokens, timeout=timeout)


def variables_of(given: Iterable[str]) -> dict[str, str]:
    """Return the variables ``NAME=value``; ``NAME`` alone has its value in this process."""
    variables: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or "\0" in each:
            raise UsageError("--env takes the name of a variable, or NAME=value.")
        if not equals and name not in os.environ:
            raise UsageError(
                f"The variable {name} of --env is not set. Set it, or give {name}=value."
            )
        variables[name] = value if equals else os.environ[name]
    return variables


def store_url(given: str | None) -> str:
    """Return the URL given as ``--store``; by default, the URL of a file in the data directory."""
    if given:
        return given
    return f"sqlite:///{user_data_path('anabranch', appauthor=False) / 'anabranch.db'}"
