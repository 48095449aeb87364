"""Context folding: an agent does a subtask in a branch, and keeps only the branch's conclusion.

A :class:`BranchService` stores branches, counts their tokens, and closes them at their limits.
Agents of this library use it through ``anabranch.agents.Folding``; other agents call the tools of
:func:`folding_tools`. :class:`BranchStore` is the interface of the store; ``anabranch.stores``
implements it for SQLite and Postgres.

    _errors.py         refusals, by code; the texts of branches, checked and cleaned
    _settings.py       defaults and limits
    _admission.py      the limits for a new branch, and its budget
    _ledger.py         the rules, on the records that a transaction sees
    _ledgers.py        a transaction for each operation, and its events
    _service.py        the operations that tools call
    _tools.py          the tools of other hosts
    _branch_store.py   branches, sessions, the table of states, and the port of stores
    _memory.py         the port of memories, its safe use, and those of ``anabranch.memory``
"""

from anabranch.folding._branch_store import (
    OPEN,
    TRANSITIONS,
    Branch,
    BranchRows,
    BranchStore,
    Session,
    Status,
)
from anabranch.folding._errors import (
    BranchNotActiveError,
    BudgetExhaustedError,
    FoldingError,
    Scrubber,
    TooManyBranchesError,
    UnknownBranchError,
    no_active_branch,
)
from anabranch.folding._ledger import ROOT, BranchEvent
from anabranch.folding._memory import BankMemory, BranchMemory, InjectedItem, MemoryOfCallers
from anabranch.folding._service import BranchService, CreatedBranch, ReturnedBranch
from anabranch.folding._settings import FoldingSettings
from anabranch.folding._tools import BranchRecord, folding_tools, warning_of

__all__ = [
    "BankMemory",
    "Branch",
    "BranchEvent",
    "BranchMemory",
    "BranchNotActiveError",
    "BranchService",
    "BranchStore",
    "BudgetExhaustedError",
    "CreatedBranch",
    "FoldingError",
    "FoldingSettings",
    "InjectedItem",
    "MemoryOfCallers",
    "ReturnedBranch",
    "Scrubber",
    "TooManyBranchesError",
    "UnknownBranchError",
    "folding_tools",
]
