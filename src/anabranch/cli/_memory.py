"""``--memory`` of the commands: opens the memory in the store of the command line, and its worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from pydantic import ValidationError

from anabranch._aio import cancel_and_wait, run_shielded
from anabranch._asking import Sampler
from anabranch._terminal import UsageError
from anabranch.engines import Engine
from anabranch.errors import StoreError, needs_extra
from anabranch.memory import POLL, Distiller, Level, ReasoningBank, Scopes, Scrubber
from anabranch.stores import open_memory_store
from anabranch.tree import TreeStore

_JOB = "branches to learn from"


def open_scrubber() -> Scrubber:
    """Return the scrubber, which searches texts for secrets before branches or the memory store them.

    Raises:
        UsageError: if the scrubber's library is not installed.
    """
    with needs_extra("memory", "The search for secrets", UsageError):
        import_module("detect_secrets")
    return Scrubber()


def open_bank(store: str | TreeStore, shared: str | None = None) -> ReasoningBank:
    """Return the memory in the store at a URL, or beside that of conversations.

    Callers share the project ``shared``; each may write there, and memories of their own.

    Raises:
        UsageError: if the URL or the name is invalid, or the search for secrets is not installed.
    """
    try:
        scopes = Scopes(project=shared or "")
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise UsageError(f"--shared-memory {shared!r} is no name: {problem}.") from error
    try:
        memories = open_memory_store(store)
    except StoreError as error:
        raise UsageError(str(error)) from error
    writes: list[Level] | None = ["person", "project"] if shared else None
    return ReasoningBank(memories, scopes=scopes, writes=writes, scrubber=open_scrubber())


@asynccontextmanager
async def learning(
    bank: ReasoningBank | None, sampler: Sampler | None, engine: Engine | None = None
) -> AsyncGenerator[None]:
    """Learn from the branches in a memory's queue while the context lasts; then close its store.

    Without a model they stay in the queue, and without a memory there is none. Of the processes that
    share an engine, one looks for them.
    """
    workers: list[asyncio.Task[Any]] = []
    if bank is not None and sampler is not None:
        distiller = Distiller(bank, sampler)
        looking = (
            distiller.run() if engine is None else engine.every(_JOB, POLL, distiller.learn_all)
        )
        workers.append(asyncio.ensure_future(looking))
    try:
        yield
    finally:
        await run_shielded(_end(bank, workers))


async def _end(bank: ReasoningBank | None, workers: list[asyncio.Task[Any]]) -> None:
    await cancel_and_wait(workers)
    if bank is not None:
        await bank.store.close()
