"""``--folding`` of the commands: branches in the store that the command line names.

Their settings are those of the environment, after those of the file that it names, if any.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from anabranch._terminal.console import Console
from anabranch._terminal.exits import UsageError
from anabranch.errors import StoreError
from anabranch.folding import BankMemory, BranchService, FoldingSettings
from anabranch.memory import ReasoningBank, Scrubber
from anabranch.memory._secret_patterns import pattern_spans
from anabranch.stores import open_branch_store, open_memory_store

__all__ = ["Foldable", "open_branches"]

Foldable: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--folding",
        negative=(),
        help="Offer branch_create, branch_return and branch_status: subtasks in branches with a"
        " budget and a deadline. Settings: ANABRANCH_FOLDING_MAX_DEPTH and the like, or a YAML file"
        " named in ANABRANCH_FOLDING_FILE.",
    ),
]


def open_branches(store: str | None) -> BranchService:
    """Return the branches in the store at a URL, or those of this process without one.

    In a store, they begin with the memories that are there, and leave what memories are made of.

    Raises:
        UsageError: the store or a setting is invalid.
    """
    try:
        settings = FoldingSettings.from_environment()
        if not store:
            return BranchService(settings=settings, scrub=_scrubber().clean)
        bank = ReasoningBank(open_memory_store(store), scrubber=_scrubber())
        return BranchService(
            open_branch_store(store),
            settings,
            memory=BankMemory(bank),
            scrub=bank.scrubber.clean,
        )
    except (OSError, ValueError, StoreError) as error:
        raise UsageError(str(error)) from error


def _scrubber() -> Scrubber:
    """Return what searches texts for secrets: with the library for that, where it is installed."""
    if find_spec("detect_secrets") is not None:
        return Scrubber()
    Console().say(
        "Secrets are searched for by few patterns only. For all of them, install anabranch[memory]."
    )
    return Scrubber(pattern_spans)
