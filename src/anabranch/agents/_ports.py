"""The ports of an agent: its model, the answers of its user, and the names of its nodes."""

from __future__ import annotations

import os
import secrets
import sys
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Literal, TypeAlias

from anabranch.messages import ElicitRequest, UrlRequest
from anabranch.models import StreamingSampler

Question: TypeAlias = ElicitRequest | UrlRequest
"""A question of a tool to the user: a form, or the visit of a URL."""


Model: TypeAlias = StreamingSampler
"""A model for an agent, which streams some replies and reads others when they are complete."""

Naming: TypeAlias = Callable[[Literal["thread", "node"]], str]
"""Returns the id of a new thread or node; each is unique."""


def random_names(kind: Literal["thread", "node"]) -> str:
    """Return ``thread_`` or ``node_``, followed by twelve random characters that suit URLs."""
    try:
        return f"{kind}_{_drawn.popleft()}"  # atomic: no two threads get the same
    except IndexError:
        drawn = secrets.token_urlsafe(9 * _AT_ONCE)
        _drawn.extend(drawn[start : start + 12] for start in range(0, 12 * _AT_ONCE, 12))
        return random_names(kind)


def name_after(place: str) -> str:
    digest = blake2b(place.encode("utf-8", "surrogatepass"), digest_size=9).digest()
    return f"node_{urlsafe_b64encode(digest).decode()}"


_AT_ONCE = 128
"""Names are drawn from the system together: the branches of a fork need hundreds at a time."""

_drawn: deque[str] = deque()

if sys.platform != "win32":
    os.register_at_fork(after_in_child=_drawn.clear)
