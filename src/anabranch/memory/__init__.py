"""The memory: notes from earlier work, which agents and branches read when they start.

A :class:`ReasoningBank` records, finds and rates notes in a store of ``anabranch.stores``. The bank
also queues finished branches, from which a :class:`Distiller` learns with a model.
:class:`Scrubber` removes secrets from every text that enters the memory or leaves a branch.

    _items.py        memories, their lengths and confidence; their owners, and what a caller sees;
                     the memories that fit into a branch's allowance of tokens
    _ports.py        the protocols of stores and of embedders
    _words.py        the search terms of a text, and lessons compared by words
    _secrets.py      secrets found and replaced, failing closed
    _bank.py         the memories of one caller
    _distilling.py   the worker that learns from finished branches, and its requests to a model
    _tools.py        the memory as tools
"""

from anabranch.memory._bank import Banks, ReasoningBank, bank_of
from anabranch.memory._distilling import POLL, Distiller
from anabranch.memory._items import (
    Draft,
    InjectedMemory,
    Level,
    LevelError,
    Memory,
    Outcome,
    Provenance,
    Recall,
    Scope,
    Scopes,
    UnknownMemoryError,
)
from anabranch.memory._ports import (
    EmbeddedKind,
    Embedder,
    Filter,
    FinishedBranch,
    Learned,
    MemoryStore,
    QueuedBranch,
)
from anabranch.memory._secrets import REDACTED, WITHHELD, Scrubbed, Scrubber, WithheldError
from anabranch.memory._tools import FoundMemory, memory_tools, shown
from anabranch.memory._words import indexed, words_of

__all__ = [
    "Distiller",
    "Draft",
    "Embedder",
    "FinishedBranch",
    "InjectedMemory",
    "LevelError",
    "Memory",
    "MemoryStore",
    "Outcome",
    "Provenance",
    "ReasoningBank",
    "Recall",
    "Scope",
    "Scopes",
    "Scrubbed",
    "Scrubber",
    "UnknownMemoryError",
    "WithheldError",
    "memory_tools",
]
