"""The ids of threads: clients choose them, and each user has a separate set of ids.

If another principal has an id, the store keeps the thread under an id that no client can choose: a
refusal would reveal the ids of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b

MARK = "@"
"""A separator that no chosen id contains."""
OWN = re.compile(rf"{MARK}[0-9a-f]{{32}}\Z")


def stored_ids(chosen: str, principal: str | None) -> Iterator[str]:
    yield chosen
    whose = blake2b((principal or "").encode("utf-8", "surrogatepass"), digest_size=16)
    yield f"{chosen}{MARK}{whose.hexdigest()}"


def shown_id(stored: str) -> str:
    return OWN.sub("", stored)
