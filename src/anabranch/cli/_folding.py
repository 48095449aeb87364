"""``--folding`` of the commands: branches in the store that the command line names.

Their settings are those of the environment, after those of the file that it names, if any.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from anabranch._terminal.exits import UsageError
from anabranch.errors import StoreError
from anabranch.folding import BranchService, FoldingSettings
from anabranch.stores import open_branch_store

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

    Raises:
        UsageError: the store or a setting is invalid.
    """
    try:
        settings = FoldingSettings.from_environment()
        return BranchService(open_branch_store(store) if store else None, settings)
    except (OSError, ValueError, StoreError) as error:
        raise UsageError(str(error)) from error
