"""Finds threads and nodes of a store by the names that users type: ``last``, an id, or its beginning."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from anabranch.errors import AnabranchError
from anabranch.tree._nodes import HEAD
from anabranch.tree._tree_store import TreeStore

LEAST = 5
"""Minimum characters of a short id, so that a growing thread seldom makes it ambiguous."""
KINDS = ("node_", "thread_")
MAX_CANDIDATES = 5


class AmbiguousIdError(AnabranchError):
    """Several ids begin with the given text; the message names them."""

    def __init__(self, text: str, found: list[str]) -> None:
        more = f" and {len(found) - MAX_CANDIDATES} more" if len(found) > MAX_CANDIDATES else ""
        named = ", ".join(found[:MAX_CANDIDATES])
        super().__init__(
            f"{text!r} is the beginning of several ids: {named}{more}. Give more of it."
        )


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Return the short form of each id; an id that this library did not make has no shorter form."""
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
    """Return the id that ``text`` is, or the only id of which ``text`` is a short form.

    Raises:
        AmbiguousIdError: if ``text`` is a short form of several ids.
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
    """Return the length of the common beginning of two texts."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


LATEST = "last"
"""The name of the latest thread."""
MAX_SEARCHED = 1_000
"""Maximum threads, the latest first, whose ids are compared with the beginning of an id."""


async def find_thread(store: TreeStore, name: str, *, without_owner: bool = False) -> str | None:
    """Return the id of the thread that ``name`` stands for, or ``None`` if there is no such thread.

    With ``without_owner``, the function ignores threads that have an owner.

    Raises:
        AmbiguousIdError: if several ids begin with ``name``.
    """
    exact = await store.thread(name)
    if exact is not None and (exact.owner is None or not without_owner):
        return name
    latest = partial(store.threads_of, None) if without_owner else store.threads
    if name == LATEST:
        return next((thread.id for thread in await latest(1)), None)
    return match_id(name, [thread.id for thread in await latest(MAX_SEARCHED)])


async def find_node_id(store: TreeStore, name: str) -> str | None:
    """Return the id of the node with this id, or whose id begins with ``name``; else ``None``.

    ``last`` is the node at the head of the latest thread.

    Raises:
        AmbiguousIdError: if several ids begin with ``name``.
    """
    if await store.node(name) is not None:
        return name
    if name == LATEST:
        latest = await store.threads(1)
        return (await store.refs(latest[0].id)).get(HEAD) if latest else None
    ids: list[str] = []
    for thread in await store.threads(MAX_SEARCHED):
        ids += [node.id for node in await store.nodes_after(thread.id, ()) or ()]
    return match_id(name, ids)
