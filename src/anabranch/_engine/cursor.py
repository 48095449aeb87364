"""Where a run stands in its journal: which recorded steps it has passed, and what it calls them.

Owns the names of steps, looking them up, and finding that a replay has taken another way than the
recorded run. It never runs or cancels anything; ``machine.py`` acts on ``fault``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from anabranch._engine.journal import Entry, Journal
from anabranch.errors import AnabranchError, NonDeterminismError

if TYPE_CHECKING:
    from anabranch._engine.branch import Branch
    from anabranch._engine.strands import Scope

__all__ = ["Course"]

_ORDINAL = re.compile(r"[.#]\d+(~\d+)?$")


class Course:
    """The way of one run through ``journal``.

    Attributes:
        journal: what has happened before; it is extended in place.
        name: path of the root branch.
        reached: ids and paths that the run has come to.
        cancelled: paths of tasks and branches that the program itself has cancelled.
        unentered: paths of branches that were made and not (yet) entered.
        fault: what ends the call whatever its body does; set once.
    """

    def __init__(self, journal: Journal, name: str) -> None:
        self.journal = journal
        self.name = name
        self.reached: set[str] = set()
        self._ahead = list(journal.entries)
        self.cancelled: set[str] = set()
        self.unentered: set[str] = set()
        self.fault: AnabranchError | None = None

    def fail_with(self, fault: AnabranchError) -> None:
        """End the call with ``fault``, whatever its body does."""
        self.fault = fault

    # -- names -------------------------------------------------------------------------------

    def new_id(self, scope: Scope, name: str, key: str | None = None) -> str:
        """Name the next step here: ``key`` in the enclosing branch, or the next ``name``.

        Raises:
            ValueError: the key has been used in this branch before.
            NonDeterminismError: the task was started from a set, so that its steps' names would
                differ from run to run.
        """
        if key is not None:
            branch = scope.branch
            step_id = key if branch.parent is None else f"{branch.path}/{key}"
        else:
            if scope.unordered:
                scope.check_order(name)
            step_id = f"{scope.path}/{name}.{scope.count(name)}"
        if step_id in self.reached:
            raise ValueError(f"The key {step_id!r} was used twice; a key names one step of a call.")
        self.reached.add(step_id)
        return step_id

    def new_attempt(self, step_id: str, attempt: int) -> str:
        """Name the repetition of an ask; the first attempt, 1, is the ask itself."""
        if attempt == 1:
            return step_id
        again = f"{step_id}~{attempt}"
        self.reached.add(again)
        return again

    def new_path(self, scope: Scope, name: str) -> str:
        """Name the next sub-branch here.

        Raises:
            NonDeterminismError: as :meth:`new_id`.
        """
        if scope.unordered:
            scope.check_order(name)
        path = f"{scope.path}/{name}#{scope.count(name)}"
        self.reached.add(path)
        self.unentered.add(path)
        return path

    # -- what is recorded --------------------------------------------------------------------

    def recall(self, step_id: str, kind: str, asked: str) -> Entry | None:
        """Return what is recorded at ``step_id``, ``None`` if nothing is.

        Raises:
            NonDeterminismError: something else is recorded there. The call ends with this error
                even if the body catches it.
        """
        if self.fault is not None:
            raise self.fault
        entry = self.journal.entries.get(step_id)
        if entry is not None:
            if entry.fingerprint == asked and entry.kind == kind:
                return entry
            recorded = (entry.kind, entry.fingerprint)
        elif step_id in self.journal.pending:
            recorded = self.journal.pending[step_id]
        else:
            return None
        if recorded != (kind, asked):
            self.fault = NonDeterminismError(step_id, " ".join(recorded), f"{kind} {asked}")
            raise self.fault
        return entry

    def record(self, step_id: str, entry: Entry, branch: Branch) -> Entry:
        """Write ``entry`` down; from here on it is part of every replay."""
        self.journal.entries[step_id] = entry
        branch.ids.append(step_id)
        return entry

    # -- drift -------------------------------------------------------------------------------

    def check_all_reached(self, error: BaseException | None) -> None:
        """Find fault unless every recorded step has been passed, or lies in what was left aside.

        ``error`` is how the body has ended, if it has failed.
        """
        pending = self.journal.pending
        for step_id in [
            *self.unreached(""),
            *(known for known in pending if known not in self.reached),
        ]:
            if self.fault is None and not self._is_excused(step_id):
                entry = self.journal.entries.get(step_id)
                kind = pending[step_id][0] if entry is None else entry.kind
                found = "not reached" if error is None else f"{type(error).__name__} before it"
                self.fault = NonDeterminismError(step_id, kind, found)
            pending.pop(step_id, None)  # nobody waits for it now

    def unreached(self, path: str) -> list[str]:
        """Return what is recorded below ``path`` (everywhere, if it is empty) and not yet passed."""
        # Among those that the run began with, less at each call: every branch that fails asks.
        self._ahead = [known for known in self._ahead if known not in self.reached]
        below, entries = f"{path}/" if path else "", self.journal.entries
        return [known for known in self._ahead if known.startswith(below) and known in entries]

    def is_replaying(self, path: str) -> bool:
        """Whether something recorded below ``path`` is still to be passed."""
        inside = "" if path == self.name else path  # the root's keys do not name it
        return any(not self._is_excused(known) for known in self.unreached(inside))

    def _is_excused(self, step_id: str) -> bool:
        """Whether it lies in what the program has cancelled, or has not entered."""
        path = step_id
        while path:
            if path in self.cancelled or path in self.unentered:
                return True
            path = path.rpartition("/")[0]
        if _ORDINAL.search(step_id):
            return False
        # An author's key tells the branch it is in, but not the task.
        inside = f"{self.name}/"
        branch = f"{step_id.rpartition('/')[0]}/" if step_id.startswith(inside) else inside
        return any(path.startswith(branch) for path in (*self.cancelled, *self.unentered))
