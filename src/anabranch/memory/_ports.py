"""The ports of the memory: its stores, their queue of finished branches, and its embedders.

An excluded memory is not ranked, so it cannot displace a memory that the caller may see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from pydantic import Field

from anabranch.memory._items import Level, Memory, Scope, Scopes
from anabranch.messages import Shape

TRANSCRIPT = 40_000
"""Maximum characters of a transcript that are stored, from its end."""

LEFT_OUT = "[The beginning is left out.]"
"""Stands for the beginning of a long text."""


class FinishedBranch(Shape):
    """A finished branch, from which notes can be distilled: task, outcome and transcript.

    ``injected`` has the ids of the notes that the branch was given. ``transcript`` is the branch's
    conversation as text.
    """

    branch_id: str = Field(min_length=1, max_length=200)
    description: str
    prompt: str = ""
    status: Literal["completed", "failed", "timeout"] = "completed"
    message: str = ""
    transcript: str = ""
    injected: tuple[str, ...] = ()

    def texts(self) -> dict[str, str]:
        """Return the texts of the branch that may contain secrets, by field name."""
        return {name: getattr(self, name) for name in _TEXTS}


_TEXTS = ("description", "prompt", "message", "transcript")


class QueuedBranch(Shape):
    """A finished branch in the queue, from which a worker will learn.

    ``scopes`` are the scopes of the branch's caller. ``level`` is the level of the new memories, by
    default the narrowest.
    """

    branch: FinishedBranch
    scopes: Scopes = Scopes()
    level: Level | None = None
    queued_at: float
    attempts: int = 0

    @property
    def home(self) -> Scope:
        """The scope that will own the memories learned from the branch."""
        return self.scopes.visible[0] if self.level is None else self.scopes.at(self.level)


@dataclass(frozen=True, slots=True)
class Filter:
    scopes: tuple[Scope, ...] | None = None
    min_confidence: float = 0.0
    limit: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """The changes to the memories after learning from a branch; ``replaced`` memories are deleted."""

    added: Sequence[Memory] = ()
    confirmed: Sequence[str] = ()
    contradicted: Sequence[str] = ()
    replaced: Sequence[str] = ()
    voter: str = ""


class MemoryStore(Protocol):
    """A store of notes. Only the library calls its methods, except ``close``.

    A method that raises ``StoreError`` has changed nothing. A write survives a crash once its
    method has returned. For an unknown id, a method returns ``None``, ``False`` or an empty value.
    """

    async def add(self, memories: Sequence[Memory]) -> list[Memory]:
        """Add memories, all or none, and return the stored memories.

        If the scope already has a memory with the same ``digest``, the store returns that memory
        and adds nothing.
        """
        ...

    async def find(self, memory_id: str) -> Memory | None:
        """Return the memory with this id, or ``None``."""
        ...

    async def newest(self, which: Filter) -> list[Memory]:
        """Return the latest memories that meet ``which``, the newest first."""
        ...

    async def search(self, words: Sequence[str], which: Filter) -> list[Memory]:
        """Return memories that have at least one of ``words``, the most relevant first.

        Words are those of :func:`~anabranch.memory.words_of`, and are compared with the terms that
        :func:`~anabranch.memory.indexed` returns for a memory's texts. English endings do not
        count, and rare words count for more.
        """
        ...

    async def rate(self, memory_id: str, *, helpful: bool, voter: str) -> Memory | None:
        """Count a vote on a memory; return the memory with its new confidence, or ``None``.

        Each voter has one vote on a memory; a second vote replaces the first.
        """
        ...

    async def forget(self, memory_id: str) -> bool:
        """Delete the memory with its vectors and votes; return whether the memory existed."""
        ...

    async def without_vector(self, embedder: str, limit: int) -> list[Memory]:
        """Return memories for which the embedder has no vector yet, the oldest first."""
        ...

    async def add_vectors(self, embedder: str, vectors: Mapping[str, Sequence[float]]) -> None:
        """Store vectors by memory id; drop the vectors of unknown memories."""
        ...

    async def nearest(
        self, embedder: str, vector: Sequence[float], which: Filter, min_similarity: float
    ) -> list[Memory]:
        """Return the memories whose vectors have the largest cosine with ``vector``, in order."""
        ...

    async def queue(self, branch: QueuedBranch) -> bool:
        """Queue a finished branch, at most once; return whether the branch is new.

        Branches that were queued 30 days earlier are deleted, learned from or not. So a queue
        without a worker does not grow without bound.
        """
        ...

    async def lease(self, owner: str, now: float, until: float) -> QueuedBranch | None:
        """Reserve for ``owner`` the branch that has waited longest, and count the attempt.

        No other worker gets the branch before ``until``. The store skips branches that are leased,
        or whose next attempt is later than ``now``.
        """
        ...

    async def finish(self, branch_id: str, owner: str, learned: Learned) -> bool:
        """End the work on a branch, and make the changes of ``learned``.

        All or nothing; nothing if another worker has the lease. Returns whether the owner had the
        lease.
        """
        ...

    async def retry(self, branch_id: str, owner: str, at: float | None, problem: str) -> bool:
        """Allow another attempt at a branch from the time ``at``; ``None`` allows no more attempts.

        Nothing happens if another worker has the lease. Returns whether the owner had the lease.
        """
        ...

    async def waiting(self) -> int:
        """Return the number of branches in the queue."""
        ...

    async def close(self) -> None:
        """Close connections and files; a second call does nothing."""
        ...


EmbeddedKind: TypeAlias = Literal["query", "document"]
"""The use of a text: some models embed questions and answers differently."""


class Embedder(Protocol):
    """Computes embedding vectors of texts, for the search by meaning."""

    @property
    def id(self) -> str:
        """The name of the embedding model, which the store keeps with each vector."""
        ...

    async def embed(self, texts: Sequence[str], kind: EmbeddedKind) -> Sequence[Sequence[float]]:
        """Return one vector for each text, in the same order."""
        ...
