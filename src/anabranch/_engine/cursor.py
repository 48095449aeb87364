"""The replay cursor: where one run of a call stands in its journal.

It gives steps their ids, looks up and writes what is recorded, and finds out when a replay takes
another way than the recorded run. While a call runs, nothing else reads or writes the journal's
entries and open questions. It runs and cancels nothing: the call acts on ``fault``.

It also admits requests to a model within the budgets of the branches around them. Whether one is
admitted depends on what others have spent and reserved by then, and that is no longer so when the
call is replayed: by then they may be settled. So the decision is part of the record. A refusal is the
request's outcome (``operations.py`` writes it), and a reservation stays in the journal until it is
settled. What earlier rounds have spent and reserved counts from the first moment, in whatever order a
replay passes the recorded steps (for what was answered since, the usage counts: ``_asking/`` sees to
that). So what is new is decided as in a body that stayed alive. One thing is left to time: of two
requests in different tasks, the one that comes first may take what the other lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from anabranch._account import BudgetError, Reservation
from anabranch._engine.branch import Branch
from anabranch._engine.journal import Answer, Ask, Entry, Journal
from anabranch._engine.scope import Scope
from anabranch.errors import AnabranchError, BranchTokenError, NonDeterminismError, error_to_json
from anabranch.limits import Limits

__all__ = ["ReplayCursor"]

_ORDINAL = re.compile(r"[.#]\d+(~\d+)?$")


class ReplayCursor:
    """The position of one run in ``journal``.

    Args:
        journal: what has happened before; it is extended in place.
        name: path of the root branch.
        recording: collect what is added, for :meth:`take_added`.
        on_fault: called with each fault.

    Attributes:
        reached: ids and paths that the run has come to.
        cancelled: paths of tasks and branches that the program itself has cancelled.
        unentered: paths of branches that were made and not (yet) entered.
        fault: what ends the call whatever its body does.
    """

    def __init__(
        self,
        journal: Journal,
        name: str,
        *,
        recording: bool = False,
        on_fault: Callable[[AnabranchError], None] | None = None,
    ) -> None:
        self.journal: Journal = journal
        self.name: str = name
        self.reached: set[str] = set()
        self.cancelled: set[str] = set()
        self.unentered: set[str] = set()
        self.fault: AnabranchError | None = None
        self._entries = journal.entries
        self._ahead = list(journal.entries)
        self._spent = journal.spent()
        self._reserved = {
            step_id: Reservation(tokens) for step_id, (tokens, _) in journal.reserved.items()
        }
        self._on_fault = on_fault
        self._added: dict[str, Entry] | None = {} if recording else None

    def fail(self, fault: AnabranchError) -> AnabranchError:
        """End the call with ``fault``, whatever its body does; return it, to be raised."""
        self.fault = fault
        if self._on_fault is not None:
            self._on_fault(fault)
        return fault

    # -- ids ---------------------------------------------------------------------------------

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

    def recall(self, step_id: str, kind: str, asked: str, branch: Branch) -> Entry | None:
        """Return what is recorded at ``step_id`` in ``branch``, ``None`` if nothing is.

        Raises:
            NonDeterminismError: something else is recorded there. The call ends with this error
                even if the body catches it.
        """
        if self.fault is not None:
            raise self.fault
        entry = self._entries.get(step_id)
        if entry is not None:
            if entry.fingerprint == asked and entry.kind == kind:
                branch.ids.append(step_id)
                return entry
            recorded = (entry.kind, entry.fingerprint)
        elif step_id in self.journal.pending:
            recorded = self.journal.pending[step_id]
        else:
            return None
        if recorded != (kind, asked):
            raise self.fail(NonDeterminismError(step_id, " ".join(recorded), f"{kind} {asked}"))
        return None

    def record(self, step_id: str, entry: Entry, branch: Branch) -> None:
        """Write ``entry``; from here on it is part of every replay."""
        self._entries[step_id] = entry
        branch.ids.append(step_id)
        self._note(step_id, entry)

    def recorded(self, step_id: str) -> Entry | None:
        """Return the entry at ``step_id``, which may be another run's that was first."""
        return self._entries.get(step_id)

    def replace(self, step_id: str, entry: Entry) -> None:
        """Put ``entry``, which another run has recorded first, in the place of ours."""
        if step_id in self._entries:
            self._entries[step_id] = entry

    def reject(self, entry: Entry, error: AnabranchError) -> None:
        """Make ``error`` the outcome of ``entry``, now and in every replay."""
        entry.error = error_to_json(error)

    # -- budgets -----------------------------------------------------------------------------

    def branch(
        self, parent: Branch | None, path: str, own: Limits, *, is_tool: bool = False
    ) -> Branch:
        """Return the branch at ``path``, with what earlier rounds have spent and reserved in it."""
        # The root's keys do not name it, so what it has spent is the sum of all.
        inside = "" if parent is None else f"{path}/"
        branch = Branch(parent, path, own, self._spent.get(inside[:-1], 0), is_tool=is_tool)
        for step_id in self._reserved_in(inside):
            self._reserved[step_id].hold_in(branch.account)
        return branch

    def reserve(self, step_id: str, branch: Branch, prompt: int, reply: int) -> int:
        """Reserve tokens for a request; return how many its reply may have, at most ``reply``.

        Raises:
            BranchTokenError: a budget does not hold the prompt.
        """
        if step_id in self.journal.reserved:  # in an earlier round, for this same request
            return self.journal.reserved[step_id][1]
        if self.is_pending(step_id):  # asked before there was a budget
            return reply
        try:
            reservation = branch.account.reserve(prompt + 1, prompt + reply)
        except BudgetError as refusal:
            raise _as_branch_error(refusal) from None
        self._reserved[step_id] = reservation
        granted = reservation.tokens - prompt
        self.journal.reserved[step_id] = (reservation.tokens, granted)
        return granted

    def settle(self, step_id: str, entry: Entry, branch: Branch, tokens: int) -> None:
        """Charge what ``entry`` has cost to ``branch`` and every ancestor, once.

        Raises:
            BranchTokenError: a budget is exceeded. The tokens stay charged and the error is the
                entry's outcome from now on, so that every replay ends the same way.
        """
        if entry.tokens is not None:
            return
        entry.tokens = tokens
        self.release(step_id)
        branch.account.settle(None, tokens)
        try:
            branch.account.check()
        except BudgetError as refusal:
            error = _as_branch_error(refusal)
            self.reject(entry, error)
            raise error from None

    def release(self, step_id: str) -> None:
        """Give back what is reserved for ``step_id``, if anything is: no reply will settle it."""
        self.journal.reserved.pop(step_id, None)
        if (reservation := self._reserved.pop(step_id, None)) is not None:
            reservation.release()

    def cancel(self, path: str) -> None:
        """Take note that the program has cancelled the task or branch at ``path``."""
        self.cancelled.add(path)
        self._release_in(path)

    def _release_in(self, path: str) -> None:
        """Give back what is reserved below ``path``, which has ended."""
        for step_id in self._reserved_in(f"{path}/"):
            self.release(step_id)

    def _reserved_in(self, prefix: str) -> list[str]:
        return [step_id for step_id in self._reserved if step_id.startswith(prefix)]

    def _note(self, step_id: str, entry: Entry) -> None:
        if self._added is not None:
            self._added[step_id] = entry

    @property
    def has_added(self) -> bool:
        """Whether something was added and not taken."""
        return bool(self._added)

    def take_added(self) -> dict[str, Entry]:
        """Return what was added since this was last called."""
        if not self._added:
            return {}
        added, self._added = self._added, {}
        return added

    # -- open questions ----------------------------------------------------------------------

    def is_pending(self, step_id: str) -> bool:
        """Whether it was asked, in this round or an earlier one, and not answered."""
        return step_id in self.journal.pending

    def ask(self, ask: Ask) -> None:
        """Take note that ``ask`` is open."""
        self.journal.pending[ask.step_id] = (ask.kind, ask.fingerprint)

    def answer(self, step_id: str, answer: Answer) -> None:
        """Record the answer to an open question, which the run may not have reached yet."""
        self.journal.answer({step_id: answer})
        self._ahead.append(step_id)
        self._note(step_id, self._entries[step_id])

    def answer_here(self, ask: Ask, answer: Answer) -> None:
        """Record the server's own answer to a question that was never open."""
        entry = Entry(ask.kind, ask.fingerprint, answer.value, answer.error, tokens=None)
        self._entries[ask.step_id] = entry
        self._note(ask.step_id, entry)

    def answered(self, step_id: str, branch: Branch) -> Entry:
        """Return the answer to what was asked in ``branch``."""
        branch.ids.append(step_id)
        return self._entries[step_id]

    def withdraw(self, step_id: str) -> None:
        """Take note that the question is no longer open: nothing awaits its answer."""
        self.journal.pending.pop(step_id, None)

    # -- folding -----------------------------------------------------------------------------

    def inside(self, branch: Branch, *, failed: bool) -> set[str]:
        """Return the ids of what is recorded inside ``branch``, which has ended."""
        inner = set(branch.ids)
        if self.cancelled or failed:
            inner.update(self.unreached(branch.path))
        return inner

    def fold(self, branch: Branch, inner: set[str], entry: Entry, into: Branch) -> None:
        """Replace ``inner`` by ``entry``, which becomes part of the branch around it."""
        journal = self.journal
        if inner:
            journal.fold(inner)
        for path in (branch.path, *branch.noticed):
            journal.delivered.pop(path, None)
            journal.deadlines.pop(path, None)
        self._release_in(branch.path)
        entry.tokens = branch.account.tokens
        self.record(branch.path, entry, into)

    def merge(self, branch: Branch, into: Branch) -> None:
        """Leave the entries of ``branch``, which has ended, to the branch around it."""
        self._release_in(branch.path)
        into.absorb(branch)
        if branch.path in self.journal.deadlines and not branch.is_expired:
            self.journal.deadlines[branch.path] = None

    # -- drift -------------------------------------------------------------------------------

    def check_all_reached(self, error: BaseException | None) -> None:
        """Find fault unless every recorded step has been passed, or lies in what was cancelled.

        ``error`` is how the body has ended, if it has failed.
        """
        pending = self.journal.pending
        for step_id in [
            *self.unreached(""),
            *(known for known in pending if known not in self.reached),
        ]:
            if self.fault is None and not self._is_excused(step_id):
                entry = self._entries.get(step_id)
                kind = pending[step_id][0] if entry is None else entry.kind
                found = "not reached" if error is None else f"{type(error).__name__} before it"
                self.fail(NonDeterminismError(step_id, kind, found))
            pending.pop(step_id, None)  # nothing awaits it now
            self.release(step_id)

    def unreached(self, path: str) -> list[str]:
        """Return what is recorded below ``path`` (everywhere, if it is empty) and not yet passed."""
        # Among those that the run began with, less at each call: every branch that fails asks.
        self._ahead = [known for known in self._ahead if known not in self.reached]
        below = f"{path}/" if path else ""
        return [
            known for known in self._ahead if known.startswith(below) and known in self._entries
        ]

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
        # An author's key names the branch that it is in, but not the task.
        inside = f"{self.name}/"
        branch = f"{step_id.rpartition('/')[0]}/" if step_id.startswith(inside) else inside
        return any(path.startswith(branch) for path in (*self.cancelled, *self.unentered))


def _as_branch_error(refusal: BudgetError) -> BranchTokenError:
    account = refusal.account
    return BranchTokenError(account.name, refusal.wanted, account.max_tokens or 0)
