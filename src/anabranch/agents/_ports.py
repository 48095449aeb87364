"""What an agent needs of the world around it: a model that streams, a person, names.

Owns the ports, and the plain ways to fill them. A model's port is that of ``models/``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from anabranch.messages import ElicitReply, ElicitRequest, UrlRequest
from anabranch.models import StreamingSampler
from anabranch.tree import Node

__all__ = ["Absent", "Model", "Naming", "Person", "Question", "random_names"]

Question: TypeAlias = ElicitRequest | UrlRequest


Model: TypeAlias = StreamingSampler
"""Who answers. An agent watches replies as they arrive, and asks for some in one piece."""


class Person(Protocol):
    """Whoever answers the questions of tools.

    Branches that run side by side ask side by side: a page can show all their questions. Who can
    show only one at a time lets the others wait. On one path there is never more than one.
    """

    async def answer(self, node: Node, question: Question) -> ElicitReply:
        """Answer the question of ``node``, which is in the store. Cancelled when withdrawn."""
        ...


class Absent:
    """Nobody is there: every question is declined."""

    async def answer(self, node: Node, question: Question) -> ElicitReply:
        """Decline."""
        del node, question
        return ElicitReply(action="decline")


Naming: TypeAlias = Callable[[Literal["thread", "node"]], str]
"""Returns a name for a thread or a node that nothing else has."""


def random_names(kind: Literal["thread", "node"]) -> str:
    """Return ``thread_`` or ``node_`` and twelve URL-safe characters, 72 random bits."""
    return f"{kind}_{secrets.token_urlsafe(9)}"
