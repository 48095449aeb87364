"""``ReasoningBank``: what a project, its team and its organisation have learned, as one caller sees it.

It decides who sees what, what is stored without its secrets, and how what is found is ranked. To
remember may fail; to be reminded may not: :meth:`ReasoningBank.recall` and
:meth:`ReasoningBank.queue` serve branches, which go on without a memory.
"""

from __future__ import annotations

import logging
import secrets

import anyio

from anabranch._engine.clock import Clock, SystemClock
from anabranch.errors import AnabranchError
from anabranch.memory._embedding import Embedder, fused
from anabranch.memory._finished import LEFT_OUT, TRANSCRIPT, FinishedBranch, QueuedBranch
from anabranch.memory._items import (
    CONTENT,
    DESCRIPTION,
    TITLE,
    Draft,
    Level,
    Memory,
    Provenance,
    Scopes,
)
from anabranch.memory._memory_store import Filter, MemoryStore
from anabranch.memory._recall import Recall, packed
from anabranch.memory._secrets import Scrubber
from anabranch.memory._words import words_of

__all__ = ["FLOOR", "MOST", "ReasoningBank", "UnknownMemoryError"]

logger: logging.Logger = logging.getLogger("anabranch")

FLOOR = 0.7
"""The confidence that a memory needs to be given to a branch."""

MOST = 3
"""How many memories a branch is given: with more, the answers of models get worse again."""

_POOL = 20
"""How many memories each ranking contributes to their fusion, at least."""

_TASK = 1_000
"""How much of the task is stored with a memory, in characters."""

_MARGIN = 8_000
"""More characters than any secret has."""

_EMBEDDED = 32
"""How many texts are embedded at once."""

SECONDS = 2.0
"""How long a branch waits for its memories, unless it says otherwise."""


class UnknownMemoryError(AnabranchError):
    """There is no such memory among those that the caller sees."""

    def __init__(self, memory_id: str) -> None:
        super().__init__(
            f"There is no memory {memory_id!r}; memory_search returns the ids of those that exist.",
            memory_id=memory_id,
        )


class ReasoningBank:
    """The memories of one caller.

    Args:
        store: where they are.
        scopes: where the caller is at home.
        embedder: ranks by meaning, besides the ranking by words.
        min_similarity: the cosine below which the embedder's ranking has nothing; what is a good
            one depends on the model.
        scrubber: takes secrets out of everything that is stored.
        clock: the time of new memories.
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        scopes: Scopes | None = None,
        embedder: Embedder | None = None,
        min_similarity: float = 0.0,
        scrubber: Scrubber | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.store: MemoryStore = store
        self.scopes: Scopes = scopes or Scopes()
        self.scrubber: Scrubber = scrubber or Scrubber()
        self.clock: Clock = clock or SystemClock()
        self._embedder = embedder
        self._min_similarity = min_similarity

    async def record(self, draft: Draft, *, level: Level = "project", task: str = "") -> Memory:
        """Store a memory, and return it; one with the same content is returned instead.

        Raises:
            WithheldError: it could not be searched for secrets.
        """
        return await self.add(await self.to_memory(draft, level=level, task=task))

    async def add(self, memory: Memory) -> Memory:
        """Store what :meth:`to_memory` has returned, and return what is stored now."""
        (stored,) = await self.store.add([memory])
        await self.embed_missing()
        return stored

    async def to_memory(
        self,
        draft: Draft,
        *,
        level: Level = "project",
        task: str = "",
        provenance: Provenance | None = None,
        scopes: Scopes | None = None,
    ) -> Memory:
        """Return what would be stored for ``draft``: without secrets, with an id.

        Raises:
            WithheldError: it could not be searched for secrets.
        """
        title, description, content, safe_task = await self._safe(
            draft.title, draft.description, draft.content, task
        )
        # The placeholder of a secret may be longer than the secret.
        safe = Draft(
            title=title[:TITLE], description=description[:DESCRIPTION], content=content[:CONTENT]
        )
        return Memory(
            **safe.model_dump(),
            id=f"mem_{secrets.token_urlsafe(9)}",
            scope=(scopes or self.scopes).at(level),
            task=safe_task[:_TASK],
            provenance=provenance or Provenance(),
            created_at=self.clock.now(),
        )

    async def _safe(self, *texts: str) -> list[str]:
        return [await self.scrubber.clean(text) for text in texts]

    async def search(
        self, text: str, *, limit: int = 10, min_confidence: float = 0.0
    ) -> list[Memory]:
        """Return the caller's memories that are about ``text``, the most relevant first."""
        which = Filter(self.scopes.visible, min_confidence, max(limit, _POOL))
        by_words = await self.store.search(words_of(text), which)
        by_meaning = await self._by_meaning(text, which)
        return (fused([by_words, by_meaning]) if by_meaning else by_words)[:limit]

    async def _by_meaning(self, text: str, which: Filter) -> list[Memory]:
        embedder = self._embedder
        if embedder is None:
            return []
        try:
            (vector,) = await embedder.embed([text], "query")
            return await self.store.nearest(embedder.id, vector, which, self._min_similarity)
        except Exception:
            logger.warning("searching without embeddings, since they failed", exc_info=True)
            return []

    async def recall(
        self,
        text: str,
        *,
        allowance: int,
        min_confidence: float = FLOOR,
        limit: int = MOST,
        timeout: float = SECONDS,
    ) -> Recall:
        """Return the memories for a branch that is about ``text``, in ``allowance`` tokens.

        It never fails: without a memory that works, or that answers within ``timeout`` seconds,
        there are none.
        """
        found: list[Memory] = []
        try:
            with anyio.move_on_after(timeout) as scope:
                found = await self.search(text, limit=_POOL, min_confidence=min_confidence)
            if scope.cancelled_caught:
                logger.warning("a branch begins without memories: none were found in time")
        except Exception:
            logger.warning("a branch begins without memories, since search failed", exc_info=True)
        return packed(found, allowance=allowance, limit=limit)

    async def rate(self, memory_id: str, *, helpful: bool) -> Memory:
        """Say whether a memory was of use, and return it as it is then.

        Raises:
            UnknownMemoryError: the caller sees no such memory.
        """
        await self.find(memory_id)
        rated = await self.store.rate(memory_id, helpful=helpful)
        if rated is None:
            raise UnknownMemoryError(memory_id)
        return rated

    async def find(self, memory_id: str) -> Memory:
        """Return a memory.

        Raises:
            UnknownMemoryError: the caller sees no such memory.
        """
        found = await self.store.find(memory_id)
        if found is None or found.scope not in self.scopes.visible:
            raise UnknownMemoryError(memory_id)
        return found

    async def newest(self, limit: int = 10) -> list[Memory]:
        """Return the caller's latest memories, the newest first."""
        return await self.store.newest(Filter(self.scopes.visible, limit=limit))

    async def forget(self, memory_id: str) -> None:
        """Delete a memory, for good.

        Raises:
            UnknownMemoryError: the caller sees no such memory.
        """
        await self.find(memory_id)
        await self.store.forget(memory_id)

    async def queue(self, branch: FinishedBranch) -> bool:
        """Queue a finished branch to be learned from, without its secrets.

        Returns whether it is queued now. It never fails: what cannot be queued is not learned from.
        """
        try:
            safe = {name: await self._bounded(text) for name, text in branch.texts().items()}
            clean = branch.model_copy(update=safe)
            waiting = QueuedBranch(branch=clean, scopes=self.scopes, queued_at=self.clock.now())
            return await self.store.queue(waiting)
        except Exception:
            logger.warning("branch %r is not learned from", branch.branch_id, exc_info=True)
            return False

    async def _bounded(self, text: str) -> str:
        """Return a text without its secrets, of a long one the end.

        A secret that a cut runs through would not be found: so more is searched than is stored.
        """
        if len(text) <= TRANSCRIPT:
            return await self.scrubber.clean(text)
        searched = await self.scrubber.clean(text[-TRANSCRIPT - _MARGIN :])
        return f"{LEFT_OUT}\n{searched[_MARGIN:]}"

    async def embed_missing(self) -> None:
        """Give vectors to memories that have none; a failure is logged, and made up for later."""
        embedder = self._embedder
        if embedder is None:
            return
        try:
            while missing := await self.store.without_vector(embedder.id, _EMBEDDED):
                texts = [_embedded_text(memory) for memory in missing]
                vectors = await embedder.embed(texts, "document")
                ids = [memory.id for memory in missing]
                await self.store.add_vectors(embedder.id, dict(zip(ids, vectors, strict=True)))
        except Exception:
            logger.warning("memories are without embeddings, which failed", exc_info=True)


def _embedded_text(memory: Memory) -> str:
    return "\n".join(filter(None, (memory.task, memory.title, memory.description, memory.content)))
