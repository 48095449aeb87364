"""The names an agent uses for its ports: a model that streams, questions to a person, ids."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Literal, TypeAlias

from anabranch.messages import ElicitRequest, UrlRequest
from anabranch.models import StreamingSampler

__all__ = ["Model", "Naming", "Question", "random_names"]

Question: TypeAlias = ElicitRequest | UrlRequest
"""What a tool asks the person: a form, or the visit of a URL."""


Model: TypeAlias = StreamingSampler
"""Answers an agent: some replies are watched as they arrive, some are read when complete."""

Naming: TypeAlias = Callable[[Literal["thread", "node"]], str]
"""Returns the id of a new thread or node; each is unique."""


def random_names(kind: Literal["thread", "node"]) -> str:
    """Return ``thread_`` or ``node_`` and twelve URL-safe characters, 72 random bits."""
    return f"{kind}_{secrets.token_urlsafe(9)}"
