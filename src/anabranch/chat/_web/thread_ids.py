"""Ids of threads, which clients choose: each principal has ids of its own.

A thread is stored under the id that its client has chosen. If another principal has that one already, it
is stored under an id that no client can choose: otherwise a refusal would say which ids others use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b

MARK = "@"
"""No id that a client chooses has it."""
OWN = re.compile(rf"{MARK}[0-9a-f]{{32}}\Z")


def stored_ids(chosen: str, principal: str | None) -> Iterator[str]:
    """Yield the ids under which a principal's thread may be stored, the first that is free."""
    yield chosen
    whose = blake2b((principal or "").encode("utf-8", "surrogatepass"), digest_size=16)
    yield f"{chosen}{MARK}{whose.hexdigest()}"


def shown_id(stored: str) -> str:
    """Return the id by which the principal knows a thread."""
    return OWN.sub("", stored)
