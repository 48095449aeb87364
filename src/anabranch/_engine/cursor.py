"""The replay cursor: where one run of a call stands in its journal.

It gives steps their ids, looks up and writes what is recorded, and finds out when a replay takes
another way than the recorded run. While a call runs, nothing else reads or writes the journal's
entries and open questions. It runs and cancels nothing: the call acts on ``fault``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from anabranch._engine.branch import Branch, Budgets
from anabranch._engine.journal import MARKER, Answer, Ask, Entry, Journal
from anabranch._engine.scope import Scope
from anabranch._engine.wordings import Wordings
from anabranch.errors import AnabranchError, NonDeterminismError, error_to_json

_ORDINAL = re.compile(r"[.#]\d+(~\d+)?$")
_FIRST = re.compile(r"[.#]\d+$")


class Reached:
    """What one run has reached of ``entries``, which may grow and shrink meanwhile.

    Args:
        entries: what is recorded.
        name: path of the root branch.

    Attributes:
        ids: ids and paths that the run has come to.
        cancelled: paths of tasks and branches that the program itself has cancelled.
        unentered: paths of branches that were made and not (yet) entered.
        on_passed: called when the run has come to another id or path, if it is set.
    """

    def __init__(self, entries: Mapping[str, Entry], name: str) -> None:
        self.ids: set[str] = set()
        self.cancelled: set[str] = set()
        self.unentered: set[str] = set()
        self.on_passed: Callable[[], None] | None = None
        self._entries = entries
        self._ahead = [known for known, entry in entries.items() if entry.kind != MARKER]
        self._name = name

    def come_to(self, step_id: str) -> None:
        """Take note that the run has come to an id, or to a path."""
        self.ids.add(step_id)
        if self.on_passed is not None:
            self.on_passed()

    def expect(self, step_id: str) -> None:
        """Take note of an entry that was recorded before the run has come to it."""
        self._ahead.append(step_id)

    def ahead(self, path: str) -> list[str]:
        """Return what is recorded below ``path`` (everywhere, if it is empty) and not yet passed."""
        # Among those that the run began with, less at each call: every branch that fails asks.
        self._ahead = [known for known in self._ahead if known not in self.ids]
        below = f"{path}/" if path else ""
        return [
            known for known in self._ahead if known.startswith(below) and known in self._entries
        ]

    def is_replaying(self, path: str) -> bool:
        """Whether something recorded below ``path`` is still to be passed."""
        inside = "" if path == self._name else path  # the root's keys do not name it
        return any(not self.is_excused(known) for known in self.ahead(inside))

    def missing(self, pending: Iterable[str]) -> list[str]:
        """Return what the run has not passed: entries, then those of ``pending``."""
        return [*self.ahead(""), *(known for known in pending if known not in self.ids)]

    def comes_later(self, path: str, pending: Iterable[str]) -> bool:
        """Whether something recorded, or ``pending``, comes later in the scope at ``path``.

        Left out is what another task may come to: what is inside of tasks, branches and questions that
        were made before, and what an author's key names.
        """
        inside = f"{path}/"
        for known in self.missing(pending):
            if known.startswith(inside):
                made = inside + known[len(inside) :].partition("/")[0]
                is_in_task = known.startswith("~", len(inside))
                if _FIRST.search(made) and not is_in_task and made not in self.ids:
                    return True
        return False

    def is_excused(self, step_id: str) -> bool:
        """Whether it lies in what the program has cancelled, or has not entered."""
        path = step_id
        while path:
            if path in self.cancelled or path in self.unentered:
                return True
            path = path.rpartition("/")[0]
        if _ORDINAL.search(step_id):
            return False
        # An author's key names the branch that it is in, but not the task.
        inside = f"{self._name}/"
        branch = f"{step_id.rpartition('/')[0]}/" if step_id.startswith(inside) else inside
        return any(path.startswith(branch) for path in (*self.cancelled, *self.unentered))


class ReplayCursor:
    """The position of one run in ``journal``.

    Args:
        journal: what has happened before; it is extended in place.
        name: path of the root branch.
        recording: collect what is added, for :meth:`take_added`.
        on_fault: called with each fault.

    Attributes:
        reached: what of the record the run has come to, and what it need not come to.
        budgets: what is spent and reserved, and which requests are admitted.
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
        self.reached: Reached = Reached(journal.entries, name)
        self.budgets: Budgets = Budgets(journal)
        self._wordings = Wordings(journal)
        self.fault: AnabranchError | None = None
        self._entries = journal.entries
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
        if step_id in self.reached.ids:
            raise ValueError(f"The key {step_id!r} was used twice; a key names one step of a call.")
        self.reached.come_to(step_id)
        return step_id

    def new_attempt(self, step_id: str, attempt: int) -> str:
        """Name the repetition of an ask; the first attempt, 1, is the ask itself."""
        if attempt == 1:
            return step_id
        again = f"{step_id}~{attempt}"
        self.reached.come_to(again)
        self._wordings.repeat(step_id, again)
        return again

    def new_path(self, scope: Scope, name: str) -> str:
        """Name the next sub-branch here.

        Raises:
            NonDeterminismError: as :meth:`new_id`.
        """
        if scope.unordered:
            scope.check_order(name)
        path = f"{scope.path}/{name}#{scope.count(name)}"
        self.reached.unentered.add(path)
        self.reached.come_to(path)
        return path

    # -- what is recorded --------------------------------------------------------------------

    def recall(self, step_id: str, kind: str, asked: str, branch: Branch) -> Entry | None:
        """Return what is recorded at ``step_id`` in ``branch``, ``None`` if nothing is.

        An open question that reads differently is withdrawn, to be asked again. An answer to other
        words is returned as ``REFUSED``.

        Raises:
            NonDeterminismError: something else is recorded there. The call ends with this error
                even if the body catches it.
        """
        if self.fault is not None:
            raise self.fault
        entry = self._entries.get(step_id)
        if entry is None:
            if self._wordings.is_other(step_id, kind, asked):
                self.withdraw(step_id)
                self.budgets.release(step_id)
            return None
        if entry.fingerprint == asked and entry.kind == kind:
            self.journal.unread.discard(step_id)
        elif self._wordings.refuses(step_id, kind, entry):
            self._note(step_id, entry)
        else:
            recorded = f"{entry.kind} {entry.fingerprint}"
            raise self.fail(NonDeterminismError(step_id, recorded, f"{kind} {asked}"))
        branch.ids.append(step_id)
        return entry

    def record(self, step_id: str, entry: Entry, branch: Branch) -> None:
        """Write ``entry``; from here on it is part of every replay."""
        self._entries[step_id] = entry
        branch.ids.append(step_id)
        self._note(step_id, entry)

    def mark(self, step_id: str, value: bool) -> None:  # noqa: FBT001 - it is what is recorded
        """Record the answer of a marker for the whole call, unless there is one."""
        if step_id not in self._entries:
            entry = self._entries[step_id] = Entry(MARKER, "", value)
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

    def cancel(self, path: str) -> None:
        """Take note that the program has cancelled the task or branch at ``path``."""
        self.reached.cancelled.add(path)
        self.budgets.release_in(path)

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
        self.reached.expect(step_id)
        self._note(step_id, self._entries[step_id])

    def answer_here(self, ask: Ask, answer: Answer, branch: Branch) -> None:
        """Record the server's own answer to a question that was never open."""
        entry = Entry(ask.kind, ask.fingerprint, answer.value, answer.error, tokens=None)
        self.record(ask.step_id, entry, branch)

    def answer_late(self, step_id: str, entry: Entry) -> None:
        """Record an answer that was held back (``open_asks.py``), unless the question is withdrawn."""
        if (asked := self.journal.pending.pop(step_id, None)) is not None:
            if asked != (entry.kind, entry.fingerprint):
                self._wordings.refuse(step_id, entry)
            self._entries[step_id] = entry
            self.reached.expect(step_id)
            self._note(step_id, entry)

    def wake(self, ask: Ask) -> None:
        """Record that the time of an open sleep has come."""
        self.withdraw(ask.step_id)
        entry = self._entries[ask.step_id] = Entry(ask.kind, ask.fingerprint)
        self._note(ask.step_id, entry)

    def answered(self, step_id: str) -> Entry:
        """Return the answer to what was asked, which the body reads now."""
        self.journal.unread.discard(step_id)
        return self._entries[step_id]

    def withdraw(self, step_id: str) -> None:
        """Take note that the question is no longer open: nothing awaits its answer."""
        self.journal.pending.pop(step_id, None)

    # -- folding -----------------------------------------------------------------------------

    def inside(self, branch: Branch, *, failed: bool) -> set[str]:
        """Return the ids of what is recorded inside ``branch``, which has ended."""
        inner = set(branch.ids)
        if self.reached.cancelled or failed:
            inner.update(self.reached.ahead(branch.path))
        return inner

    def fold(self, branch: Branch, inner: set[str], entry: Entry, into: Branch) -> None:
        """Replace ``inner`` by ``entry``, which becomes part of the branch around it."""
        journal = self.journal
        if inner:
            journal.fold(inner)
        for path in (branch.path, *branch.noticed):
            journal.delivered.pop(path, None)
            journal.deadlines.pop(path, None)
        self.budgets.release_in(branch.path)
        entry.tokens = branch.account.tokens
        self.record(branch.path, entry, into)

    def merge(self, branch: Branch, into: Branch) -> None:
        """Leave the entries of ``branch``, which has ended, to the branch around it."""
        self.budgets.release_in(branch.path)
        into.absorb(branch)
        if branch.path in self.journal.deadlines and not branch.is_expired:
            self.journal.deadlines[branch.path] = None

    # -- drift -------------------------------------------------------------------------------

    def has_reached_all(self) -> bool:
        """Whether every recorded step has been passed, or lies in what was cancelled."""
        missing = self.reached.missing(self.journal.pending)
        return all(map(self.reached.is_excused, missing))

    def check_all_reached(self, error: BaseException | None, *, asks_all: bool = False) -> None:
        """Find fault unless every recorded step has been passed, or lies in what was cancelled.

        ``error`` is how the body has ended, if it has failed: then, or if it ``asks_all``, it must
        have come to the open questions, too. Otherwise those are withdrawn that it no longer asks.
        """
        pending = self.journal.pending
        asks_all = asks_all or error is not None
        for step_id in self.reached.missing(pending):
            entry = self._entries.get(step_id)
            is_missed = (entry is not None or asks_all) and not self.reached.is_excused(step_id)
            if is_missed and self.fault is None:
                kind = pending[step_id][0] if entry is None else entry.kind
                found = "not reached" if error is None else f"{type(error).__name__} before it"
                self.fail(NonDeterminismError(step_id, kind, found))
            pending.pop(step_id, None)  # nothing awaits it now
            self.budgets.release(step_id)
