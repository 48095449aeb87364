"""``--memory`` of the commands: the memory in the store that the command line names."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from anabranch._terminal.exits import UsageError
from anabranch.errors import StoreError
from anabranch.memory import ReasoningBank
from anabranch.stores import open_memory_store

__all__ = ["Remembering", "open_bank"]

Remembering: TypeAlias = Annotated[
    bool,
    Parameter(
        name="--memory",
        negative=(),
        help="Offer memory_search, memory_record and memory_feedback. What they remember is in the"
        " --store, by default a file in your data directory. No TARGET is needed then.",
    ),
]


def open_bank(store: str) -> ReasoningBank:
    """Return the memory in the store at a URL.

    Raises:
        UsageError: the URL is invalid.
    """
    try:
        return ReasoningBank(open_memory_store(store))
    except StoreError as error:
        raise UsageError(str(error)) from error
