"""The worker that learns from finished branches: judged, distilled, without duplicates, once.

A branch is leased from the queue, and what was learned is added in the transaction that ends the
work on it. So a worker that is killed loses nothing, and nothing is added twice; another worker
begins again when the lease has ended, at once if the worker was cancelled. A model that fails is
asked again later, a few times.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress

import anyio

from anabranch._asking.sampling import Sampler
from anabranch._engine.clock import pause
from anabranch._shielded import run_shielded
from anabranch.errors import StoreError
from anabranch.memory._bank import ReasoningBank
from anabranch.memory._finished import QueuedBranch
from anabranch.memory._items import Draft, Memory, Outcome, Provenance
from anabranch.memory._memory_store import Filter
from anabranch.memory._prompts import extraction, judgement, read_items, read_verdict
from anabranch.memory._words import words_of

__all__ = ["ATTEMPTS", "LEASE", "POLL", "Distiller"]

logger: logging.Logger = logging.getLogger("anabranch")

LEASE = 600.0
"""Seconds that a worker has for one branch."""

ATTEMPTS = 3
"""How often a branch is tried before it is given up."""

POLL = 30.0
"""Seconds from one look into the queue to the next."""

_RETRY = 60.0
_SAME = 0.7
"""The share of common words from which two lessons are one."""


class Distiller:
    """Learns from the finished branches in a memory's queue.

    Args:
        bank: the memory; each branch becomes memories of the project that queued it.
        sampler: the model that judges and distils.
    """

    def __init__(self, bank: ReasoningBank, sampler: Sampler) -> None:
        self._bank = bank
        self._store = bank.store
        self._sampler = sampler
        self._owner = secrets.token_hex(8)

    async def run(self, *, poll: float = POLL) -> None:
        """Learn from each branch that is queued, for ever; look every ``poll`` seconds."""
        while True:
            try:
                await self.learn_all()
            except StoreError:
                logger.warning("the memory's queue cannot be read; trying again", exc_info=True)
            await pause(self._bank.clock, poll)

    async def learn_all(self) -> int:
        """Learn from each branch that is queued now; return how many there were.

        One that cannot be learned from now counts, and is tried again later.

        Raises:
            StoreError: the store cannot do its work.
        """
        done = 0
        while await self.learn_next():
            done += 1
        return done

    async def learn_next(self) -> bool:
        """Learn from the branch that has waited longest; return whether there was one.

        A branch that cannot be learned from now is tried again later, :data:`ATTEMPTS` times.

        Raises:
            StoreError: the store cannot do its work.
        """
        now = self._bank.clock.now()
        queued = await self._store.lease(self._owner, now, now + LEASE)
        if queued is None:
            return False
        branch_id = queued.branch.branch_id
        try:
            with anyio.fail_after(LEASE):
                learned, confirmed = await self._learned_from(queued)
        except asyncio.CancelledError:  # the process ends: the next worker need not wait for it
            await run_shielded(self._hand_back(branch_id))
            raise
        except Exception as error:  # noqa: BLE001  # a model's adapter may raise anything
            await self._try_again(queued, error)
        else:
            await self._store.finish(branch_id, self._owner, learned, confirmed)
            await self._bank.embed_missing()
        return True

    async def _hand_back(self, branch_id: str) -> None:
        with suppress(StoreError):  # then its lease runs out
            await self._store.retry(branch_id, self._owner, self._bank.clock.now(), "interrupted")

    async def _try_again(self, queued: QueuedBranch, error: Exception) -> None:
        branch_id, problem = queued.branch.branch_id, type(error).__name__
        logger.warning("branch %r cannot be learned from: %s", branch_id, problem, exc_info=error)
        wait = _RETRY * 2 ** (queued.attempts - 1)
        at = self._bank.clock.now() + wait if queued.attempts < ATTEMPTS else None
        await self._store.retry(branch_id, self._owner, at, problem)

    async def _learned_from(self, queued: QueuedBranch) -> tuple[list[Memory], list[str]]:
        """Return the new memories, and the ids of those that were learned again."""
        outcome = await self._outcome(queued)
        if outcome is None:
            return [], []
        reply = await self._sampler.sample(extraction(queued.branch, outcome))
        provenance = Provenance(
            source="distilled", branch_id=queued.branch.branch_id, outcome=outcome
        )
        task = f"{queued.branch.description}\n{queued.branch.prompt}"
        learned: list[Memory] = []
        confirmed: list[str] = []
        for draft in read_items(reply):
            known = await self._known(draft, queued, learned)
            if known is None:
                learned.append(
                    await self._bank.to_memory(
                        draft, task=task, provenance=provenance, scopes=queued.scopes
                    )
                )
            elif known not in learned:
                confirmed.append(known.id)
        return learned, confirmed

    async def _outcome(self, queued: QueuedBranch) -> Outcome | None:
        if queued.branch.status != "completed":
            return "failure"
        verdict = read_verdict(await self._sampler.sample(judgement(queued.branch)))
        return None if verdict == "unclear" else verdict

    async def _known(
        self, draft: Draft, queued: QueuedBranch, learned: Sequence[Memory]
    ) -> Memory | None:
        """Return the memory that says the same as ``draft``, among all of the project."""
        words = words_of(f"{draft.title} {draft.content}")
        which = Filter((queued.scopes.at("project"),), limit=5)
        for memory in (*learned, *await self._store.search(words, which)):
            same = set(words) & set(theirs := words_of(f"{memory.title} {memory.content}"))
            if len(same) >= _SAME * len({*words, *theirs}):
                return memory
        return None
