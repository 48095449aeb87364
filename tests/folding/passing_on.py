"""A store of branches that forwards every call to another, and whose methods a test overrides."""

from typing import Any

from anabranch.folding import BranchStore
from anabranch.stores import open_branch_store


class PassingOn:
    """A store in the memory of this process."""

    def __init__(self) -> None:
        self.store: BranchStore = open_branch_store("memory:")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)
