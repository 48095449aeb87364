"""The options ``--memory`` and ``--folding``: memory and branches in the command's store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from anabranch._aio import cancel_and_wait, run_shielded
from anabranch._asking import Sampler
from anabranch._terminal import Console, UsageError, failing_as
from anabranch.errors import StoreError, needs_extra
from anabranch.folding import BankMemory, BranchService, FoldingSettings
from anabranch.memory import Distiller, Level, ReasoningBank, Scopes, Scrubber
from anabranch.stores import open_branch_store, open_memory_store
from anabranch.tree import TreeStore


def open_scrubber() -> Scrubber:
    with needs_extra("memory", "The search for secrets", UsageError):
        import_module("detect_secrets")
    return Scrubber()


def open_bank(store: str | TreeStore, shared: str | None = None) -> ReasoningBank:
    """Return the memory in ``store``; callers share the project ``shared``."""
    try:
        scopes = Scopes(project=shared or "")
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise UsageError(f"--shared-memory {shared!r} is no name: {problem}.") from error
    with failing_as(UsageError, StoreError):
        memories = open_memory_store(store)
    writes: list[Level] | None = ["user", "project"] if shared else None
    return ReasoningBank(memories, scopes=scopes, writes=writes, scrubber=open_scrubber())


@asynccontextmanager
async def learning(bank: ReasoningBank | None, sampler: Sampler | None) -> AsyncGenerator[None]:
    """In the block, learn from the branches in the queue of ``bank``; then close its store.

    Without a model, the branches stay in the queue.
    """
    learner = None if bank is None or sampler is None else Distiller(bank, sampler).run()
    try:
        async with _beside(learner):
            yield
    finally:
        if bank is not None:
            await run_shielded(bank.store.close())


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, object] | None) -> AsyncGenerator[None]:
    """Do ``work`` next to the block, until the block ends."""
    tasks = [] if work is None else [asyncio.create_task(work)]
    try:
        yield
    finally:
        await run_shielded(cancel_and_wait(tasks))


_QUEUED = (
    "Branches that return with extract_memory are queued until `anabranch memory distill`, or a"
    " process with --memory and a --model, learns from them."
)


def open_branches(
    store: str | TreeStore | None, bank: ReasoningBank | None = None, *, learns: bool = False
) -> BranchService:
    """Return the branches in ``store``, or in this process; they use the memory ``bank``."""
    if bank is not None and not learns:
        Console().say(_QUEUED)
    with failing_as(UsageError, OSError, ValueError, StoreError):
        return BranchService(
            open_branch_store(store or "memory:"),
            FoldingSettings.from_environment(),
            memory=None if bank is None else BankMemory(bank),
            scrub=open_scrubber().clean,
        )


def expiring(branches: BranchService | None) -> AbstractAsyncContextManager[None]:
    return _beside(None if branches is None else branches.run())
