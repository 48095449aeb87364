"""``Embedder``, the port of models that turn texts into vectors, and the fusion of two rankings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, TypeAlias

from anabranch.memory._items import Memory

EmbeddedKind: TypeAlias = Literal["query", "document"]
"""The use of a text: some models embed questions and answers differently."""

_RANK = 60
"""The constant of reciprocal rank fusion; larger values weigh the first ranks less."""


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def id(self) -> str:
        """The name of the model. Vectors of different names are never compared."""
        ...

    async def embed(self, texts: Sequence[str], kind: EmbeddedKind) -> Sequence[Sequence[float]]:
        """Return a vector for each text. The caller logs any error, and searches without vectors."""
        ...


def fused(rankings: Iterable[Sequence[Memory]]) -> list[Memory]:
    """Return the memories of several rankings in one ranking, by reciprocal rank fusion."""
    scores: dict[str, float] = {}
    found: dict[str, Memory] = {}
    for ranking in rankings:
        for rank, memory in enumerate(ranking, start=1):
            found[memory.id] = memory
            scores[memory.id] = scores.get(memory.id, 0.0) + 1 / (_RANK + rank)
    return sorted(found.values(), key=lambda memory: -scores[memory.id])
