"""``MemoryStore``, the protocol of stores of memories, and the queue of branches to learn from.

A memory never changes but for its votes. Scopes and confidence are filters: what they exclude is
not ranked, so it cannot push out what may be seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pydantic import Field

from anabranch.memory._items import Memory
from anabranch.memory._scopes import Level, Scope, Scopes
from anabranch.messages import Shape

TRANSCRIPT = 40_000
"""How many characters of what was done are stored, from its end."""

LEFT_OUT = "[The beginning is left out.]"
"""What stands where the beginning of a long text was."""


class FinishedBranch(Shape):
    """What a branch was to do, how it ended, and what it has done.

    ``injected`` are the ids of the memories that it was given. ``transcript`` is its conversation
    as text.
    """

    branch_id: str = Field(min_length=1, max_length=200)
    description: str
    prompt: str = ""
    status: Literal["completed", "failed", "timeout"] = "completed"
    message: str = ""
    transcript: str = ""
    injected: tuple[str, ...] = ()

    def texts(self) -> dict[str, str]:
        """Return the texts that can hold secrets, by the names of the fields."""
        return {name: getattr(self, name) for name in _TEXTS}


_TEXTS = ("description", "prompt", "message", "transcript")


class QueuedBranch(Shape):
    """A finished branch that waits to be learned from.

    ``scopes`` are those of the caller whose branch it was, and ``level`` is where its memories
    belong; by default, the narrowest.
    """

    branch: FinishedBranch
    scopes: Scopes = Scopes()
    level: Level | None = None
    queued_at: float
    attempts: int = 0

    @property
    def home(self) -> Scope:
        """Whose the memories are that are learned from it."""
        return self.scopes.visible[0] if self.level is None else self.scopes.at(self.level)


@dataclass(frozen=True, slots=True)
class Filter:
    """Which memories may be found.

    Attributes:
        scopes: only those of these scopes; ``None`` for all.
        min_confidence: only those of at least this confidence.
        limit: how many at most.
    """

    scopes: tuple[Scope, ...] | None = None
    min_confidence: float = 0.0
    limit: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What the work on a branch leaves, by the ids of memories but for those that are new.

    Attributes:
        added: the new memories.
        confirmed: those that the branch has shown to be right; each is a vote.
        contradicted: those that it has shown to be wrong; each is a vote.
        replaced: those in whose place new ones are added; they are forgotten.
        voter: who votes, as :meth:`MemoryStore.rate` has it.
    """

    added: Sequence[Memory] = ()
    confirmed: Sequence[str] = ()
    contradicted: Sequence[str] = ()
    replaced: Sequence[str] = ()
    voter: str = ""


class MemoryStore(Protocol):
    """A store of memories.

    A method that raises ``StoreError`` has changed nothing. When a method returns, what it wrote
    survives a crash. What is unknown is no error: ``None``, ``False`` or nothing is returned.
    """

    async def add(self, memories: Sequence[Memory]) -> list[Memory]:
        """Add memories, all or none, and return what is stored.

        Where its scope has a memory of the same ``digest`` already, that one is returned, and
        nothing is added.
        """
        ...

    async def find(self, memory_id: str) -> Memory | None:
        """Return the memory."""
        ...

    async def newest(self, which: Filter) -> list[Memory]:
        """Return the latest memories, the newest first."""
        ...

    async def search(self, words: Sequence[str], which: Filter) -> list[Memory]:
        """Return memories that have any of the ``words``, the most relevant first.

        Words are those of :func:`~anabranch.memory.words_of`, and are compared with the terms that
        :func:`~anabranch.memory.indexed` returns for a memory's texts. English endings do not count,
        and rare words count for more.
        """
        ...

    async def rate(self, memory_id: str, *, helpful: bool, voter: str) -> Memory | None:
        """Count a vote, and return the memory as it is then.

        Each voter has one vote on a memory: another one takes the place of the first.
        """
        ...

    async def forget(self, memory_id: str) -> bool:
        """Delete the memory, its vectors and votes included; return whether it existed."""
        ...

    async def without_vector(self, embedder: str, limit: int) -> list[Memory]:
        """Return memories that have no vector of the embedder, the oldest first."""
        ...

    async def add_vectors(self, embedder: str, vectors: Mapping[str, Sequence[float]]) -> None:
        """Store the vectors of memories, by their ids; those of unknown memories are dropped."""
        ...

    async def nearest(
        self, embedder: str, vector: Sequence[float], which: Filter, min_similarity: float
    ) -> list[Memory]:
        """Return the memories whose vectors have the largest cosine with ``vector``, that first."""
        ...

    async def queue(self, branch: QueuedBranch) -> bool:
        """Queue a finished branch; return whether it is new. A branch is queued once.

        Those that were queued 30 days before this one are deleted, whether they were learned from
        or not: a queue that no one works on does not grow without bound.
        """
        ...

    async def lease(self, owner: str, now: float, until: float) -> QueuedBranch | None:
        """Return the branch that has waited longest, with one more attempt, for ``owner`` alone.

        No one else is given it before ``until``. One that is leased, or is to be tried again
        later than ``now``, is passed over.
        """
        ...

    async def finish(self, branch_id: str, owner: str, learned: Learned) -> bool:
        """End the work on a branch: forget, count votes, and add as it says.

        All or nothing, and nothing if the lease is no longer the owner's; returns whether it was.
        """
        ...

    async def retry(self, branch_id: str, owner: str, at: float | None, problem: str) -> bool:
        """Let the branch be leased again from ``at``; ``None`` gives it up.

        Nothing happens if the lease is no longer the owner's; returns whether it was.
        """
        ...

    async def waiting(self) -> int:
        """Return how many branches are still to be learned from."""
        ...

    async def close(self) -> None:
        """Close connections and files; closing again does nothing."""
        ...
