"""``ReasoningBank``: the notes that one caller may read: the user's, and those of shared levels."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable
from copy import copy
from typing import TypeAlias

import anyio

from anabranch._aio import Clock, SystemClock
from anabranch.memory._items import (
    CONTENT,
    DESCRIPTION,
    TITLE,
    Draft,
    Level,
    LevelError,
    Memory,
    Provenance,
    Recall,
    Scope,
    Scopes,
    UnknownMemoryError,
    fused,
    packed,
)
from anabranch.memory._ports import (
    LEFT_OUT,
    TRANSCRIPT,
    Embedder,
    Filter,
    FinishedBranch,
    MemoryStore,
    QueuedBranch,
)
from anabranch.memory._secrets import Scrubber
from anabranch.memory._words import is_near, stems_of, words_of

logger: logging.Logger = logging.getLogger("anabranch")

FLOOR = 0.7
"""The minimum confidence of a memory that a branch receives."""

MOST = 3
"""The number of memories that :meth:`ReasoningBank.recall` returns by default."""

_POOL = 20
"""Minimum memories that each ranking contributes to the fusion."""

_TASK = 1_000
"""Maximum characters of the task that are stored with a memory."""

_MARGIN = 8_000
"""More characters than any secret has; the search for secrets looks this far past a cut."""

_EMBEDDED = 32
"""Maximum texts in one request to the embedder."""

SECONDS = 2.0
"""Seconds that a branch waits for its memories, by default."""


class ReasoningBank:
    """The memory of one caller: records, finds and rates notes.

    Without principals, all callers share one bank.

    Args:
        store: the store of the notes.
        scopes: the caller's name, project, team and organisation.
        writes: the levels at which the caller may record and delete notes; by default, the caller's
            narrowest level.
        embedder: ranks notes by meaning, in addition to the ranking by words.
        min_similarity: the minimum cosine similarity in the ranking by meaning; a good value
            depends on the embedding model.
        scrubber: removes secrets from everything that is stored.
        clock: the source of the time of new notes; by default, the system's.
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        scopes: Scopes | None = None,
        writes: Level | Iterable[Level] | None = None,
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
        # One text is one level.
        listed = [writes] if isinstance(writes, str) else writes
        self._writes = None if listed is None else frozenset(listed)

    def of(self, principal: str | None) -> ReasoningBank:
        """Return the memory of one caller, with the caller's private and shared notes.

        The caller's notes are stored at the level ``user``. All callers see the notes of the
        project, team and organisation that this bank names. Without a ``principal``, the method
        returns this bank, which all callers share.
        """
        if not principal:
            return self
        view = copy(self)
        view.scopes = self.scopes.of(principal)
        return view

    @property
    def writable(self) -> tuple[Scope, ...]:
        """The scopes to which the caller may write, the narrowest first."""
        seen = self.scopes.visible
        return (
            seen[:1] if self._writes is None else tuple(s for s in seen if s.level in self._writes)
        )

    async def record(self, draft: Draft, *, level: Level | None = None, task: str = "") -> Memory:
        """Store a note and return it; if the same note is stored already, return that note.

        Args:
            draft: the note.
            level: the level at which the note is shared; by default, the narrowest that the caller
                may write.
            task: the task during which the note was learned.

        Raises:
            LevelError: if the caller may not write at ``level``.
            WithheldError: if the search for secrets failed.
        """
        return await self.add(await self.to_memory(draft, level=level, task=task))

    async def add(self, memory: Memory) -> Memory:
        """Store a note that :meth:`to_memory` returned, and return the stored note."""
        (stored,) = await self.store.add([memory])
        await self.embed_missing()
        return stored

    async def similar_to(self, memory: Memory) -> list[Memory]:
        """Return the caller's other notes that say nearly the same, the newest first.

        Such a note repeats the content in other words, or has an outdated fact.
        """
        which = Filter(self.scopes.visible, limit=_POOL)
        found = await self.store.search(words_of(memory.lesson), which)
        stems = stems_of(memory.lesson)
        near = [
            each for each in found if each.id != memory.id and is_near(stems_of(each.lesson), stems)
        ]
        return sorted(near, key=lambda each: -each.created_at)

    async def to_memory(
        self,
        draft: Draft,
        *,
        level: Level | None = None,
        task: str = "",
        provenance: Provenance | None = None,
        scope: Scope | None = None,
    ) -> Memory:
        """Return ``draft`` as a note without secrets, for :meth:`add`; store nothing.

        ``scope`` is the scope of another caller, for a worker that learns from all callers'
        branches.

        Raises:
            LevelError: if the caller may not write at ``level``.
            WithheldError: if the search for secrets failed.
        """
        scope = scope or self._writable(level)
        texts = (draft.title, draft.description, draft.content, task)
        title, description, content, safe_task = [await self.scrubber.clean(text) for text in texts]
        # The placeholder of a secret may be longer than the secret.
        safe = Draft(
            title=title[:TITLE], description=description[:DESCRIPTION], content=content[:CONTENT]
        )
        return Memory(
            **safe.model_dump(),
            id=f"mem_{secrets.token_urlsafe(9)}",
            scope=scope,
            task=safe_task[:_TASK],
            provenance=provenance or Provenance(),
            created_at=self.clock.now(),
        )

    def _writable(self, level: Level | None) -> Scope:
        for scope in self.writable:
            if level in (None, scope.level):
                return scope
        raise self._not_writable(level)

    def _not_writable(self, level: Level | None) -> LevelError:
        return LevelError(level, [scope.level for scope in self.writable])

    async def search(
        self, text: str, *, limit: int = 10, min_confidence: float = 0.0
    ) -> list[Memory]:
        """Return the caller's notes about ``text``, the most relevant first."""
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
        """Return the notes for a branch about ``text``, with at most ``allowance`` tokens.

        If the store or the embedder fails, or does not answer within ``timeout`` seconds, the
        result is empty.
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
        """Record whether a note was useful, and return the note with its new confidence.

        A caller has one vote on each note; a new vote replaces the earlier vote.

        Raises:
            UnknownMemoryError: if the caller sees no such memory.
        """
        await self.find(memory_id)
        rated = await self.store.rate(memory_id, helpful=helpful, voter=self.scopes.voter)
        if rated is None:
            raise UnknownMemoryError(memory_id)
        return rated

    async def find(self, memory_id: str) -> Memory:
        """Return the note with this id.

        Raises:
            UnknownMemoryError: if the caller sees no such memory.
        """
        found = await self.store.find(memory_id)
        if found is None or found.scope not in self.scopes.visible:
            raise UnknownMemoryError(memory_id)
        return found

    async def newest(self, limit: int = 10) -> list[Memory]:
        """Return the caller's latest notes, the newest first."""
        return await self.store.newest(Filter(self.scopes.visible, limit=limit))

    async def forget(self, memory_id: str) -> None:
        """Delete a note permanently.

        Raises:
            LevelError: if the caller may not write at the note's level.
            UnknownMemoryError: if the caller sees no such memory.
        """
        found = await self.find(memory_id)
        if found.scope not in self.writable:
            raise self._not_writable(found.scope.level)
        await self.store.forget(memory_id)

    async def queue(self, branch: FinishedBranch) -> bool:
        """Queue a finished branch for learning, without secrets; return whether it was queued.

        Notes from the branch are stored at the narrowest level that the caller may write. The
        method raises no error if the branch cannot be queued.
        """
        try:
            home = self._writable(None)
            safe = {name: await self._bounded(text) for name, text in branch.texts().items()}
            clean = branch.model_copy(update=safe)
            waiting = QueuedBranch(
                branch=clean, scopes=self.scopes, level=home.level, queued_at=self.clock.now()
            )
            return await self.store.queue(waiting)
        except Exception:
            logger.warning("cannot learn from branch %r", branch.branch_id, exc_info=True)
            return False

    async def _bounded(self, text: str) -> str:
        """Return the end of a text; search more of it, since no search finds a secret that is cut."""
        if len(text) <= TRANSCRIPT:
            return await self.scrubber.clean(text)
        searched = await self.scrubber.clean(text[-TRANSCRIPT - _MARGIN :])
        return f"{LEFT_OUT}\n{searched[_MARGIN:]}"

    async def embed_missing(self) -> None:
        """Compute missing vectors of notes; log a failure, and retry later."""
        embedder = self._embedder
        if embedder is None:
            return
        try:
            while missing := await self.store.without_vector(embedder.id, _EMBEDDED):
                parts = ((m.task, m.title, m.description, m.content) for m in missing)
                texts = ["\n".join(filter(None, each)) for each in parts]
                vectors = await embedder.embed(texts, "document")
                ids = [memory.id for memory in missing]
                await self.store.add_vectors(embedder.id, dict(zip(ids, vectors, strict=True)))
        except Exception:
            logger.warning("memories stay without embeddings: the embedder failed", exc_info=True)


Banks: TypeAlias = ReasoningBank | Callable[[str | None], ReasoningBank]
"""The memories of all callers: one bank, in which each has separate notes, or a function.

The function returns the bank of a principal, or of everyone where callers are not distinguished.
"""


def bank_of(banks: Banks, principal: str | None) -> ReasoningBank:
    if isinstance(banks, ReasoningBank):
        return banks.of(principal)
    return banks(principal or None)
