"""``--folding`` of the commands: opens branches in the store that the command line names.

Folding lets a model do a subtask in a branch and keep the result alone. The settings come from the
environment, which may name a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NoReturn

from anabranch._aio import cancel_and_wait, run_shielded
from anabranch._terminal import Console, UsageError
from anabranch.cli._memory import open_scrubber
from anabranch.engines import Engine, InProcessEngine
from anabranch.errors import StoreError
from anabranch.folding import BankMemory, BranchService, FoldingSettings
from anabranch.memory import ReasoningBank
from anabranch.stores import open_branch_store
from anabranch.tree import TreeStore

_QUEUED = (
    "Branches that return with extract_memory are queued until `anabranch memory distill`, or a"
    " process with --memory and a --model, learns from them."
)


def open_branches(
    store: str | TreeStore | None, bank: ReasoningBank | None = None, *, learns: bool = False
) -> BranchService:
    """Return the branches in the store at a URL or beside that of conversations, or in this process.

    With a memory, they begin with what is in it, and leave what memories are made of; ``learns``
    says whether this process makes them.

    Raises:
        UsageError: the store or a setting is invalid, or the search for secrets is not installed.
    """
    if bank is not None and not learns:
        Console().say(_QUEUED)
    try:
        return BranchService(
            open_branch_store(store or "memory:"),
            FoldingSettings.from_environment(),
            memory=None if bank is None else BankMemory(bank),
            scrub=open_scrubber().clean,
        )
    except (OSError, ValueError, StoreError) as error:
        raise UsageError(str(error)) from error


@asynccontextmanager
async def expiring(branches: BranchService | None, engine: Engine | None) -> AsyncGenerator[None]:
    """Close branches whose time is over while the context lasts.

    Of the processes that share an engine, one does; without one, each does.
    """
    tasks: list[asyncio.Task[NoReturn]] = []
    if branches is not None:
        tasks.append(asyncio.create_task(branches.run(engine or InProcessEngine())))
    try:
        yield
    finally:
        await run_shielded(cancel_and_wait(tasks))
