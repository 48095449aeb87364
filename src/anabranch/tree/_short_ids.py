"""Short ids: the beginnings of ids, for people to read and to type.

An id is a kind, an underscore and random characters (``node_8fX0…``). Its short form leaves out the kind,
and all random characters that are not needed to tell it from its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.errors import AnabranchError

LEAST = 5
"""Characters of a short id, so that it does not often become ambiguous when a thread grows."""
KINDS = ("node_", "thread_")
MAX_CANDIDATES = 5


class AmbiguousIdError(AnabranchError):
    """Several ids begin like this; the message names them."""

    def __init__(self, text: str, found: list[str]) -> None:
        more = f" and {len(found) - MAX_CANDIDATES} more" if len(found) > MAX_CANDIDATES else ""
        named = ", ".join(found[:MAX_CANDIDATES])
        super().__init__(
            f"{text!r} is the beginning of several ids: {named}{more}. Give more of it."
        )


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return the short form of each id; one of another make is its own short form."""
    known = list(ids)
    ends = sorted({_end(each) for each in known})
    lengths: dict[str, int] = {}
    for before, end, after in zip(["", *ends], ends, [*ends[1:], ""], strict=False):
        lengths[end] = max(LEAST, _common(before, end) + 1, _common(end, after) + 1)
    return {
        each: _end(each)[: lengths[_end(each)]] if each.startswith(KINDS) else each
        for each in known
    }


def match_id(text: str, ids: Iterable[str]) -> str | None:
    """Return the id that ``text`` is, or the only one of which it is a short form.

    Raises:
        AmbiguousIdError: it is one of several.
    """
    known = list(ids)
    if text in known:
        return text
    begin = _end(text)
    found = [each for each in known if each.startswith(KINDS) and _end(each).startswith(begin)]
    if len(begin) < LEAST or not found:
        return None
    if len(found) > 1:
        raise AmbiguousIdError(text, found)
    return found[0]


def _end(name: str) -> str:
    return name.partition("_")[2] if name.startswith(KINDS) else name


def _common(one: str, other: str) -> int:
    """Return the length of what both begin with."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
