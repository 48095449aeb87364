"""The replay cursor: names steps, reads and writes journal entries, and finds drift.

While a call runs, only its cursor reads and writes the journal's entries and open questions. The
cursor runs and cancels nothing: the cursor sets ``fault``, and the call acts on that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from anabranch._engine.branch import Branch, Budgets
from anabranch._engine.journal import DEFAULTS, MARKER, Answer, Ask, Entry, Journal
from anabranch._engine.open_asks import Wordings
from anabranch._engine.strands import Scope
from anabranch.errors import AnabranchError, NonDeterminismError, error_to_json

_ORDINAL = re.compile(r"[.#]\d+(~\d+)?$")
_FIRST = re.compile(r"[.#]\d+$")


class Reached:
    """The journal's entries that one run has passed, and the entries still ahead of the run.

    ``ids`` has the ids and paths that the run has come to, ``cancelled`` the paths that the program
    itself has cancelled, and ``unentered`` the paths of branches that were made and not (yet)
    entered.
    """

    def __init__(self, entries: Mapping[str, Entry], name: str) -> None:
        self.ids: set[str] = set()
        self.cancelled: set[str] = set()
        self.unentered: set[str] = set()
        self.on_passed: Callable[[], None] | None = None
        self._entries = entries
        # A marker counts for no progress: code may drop one without drift
        # (test_a_marker_can_be_removed_from_the_code). Nor do recorded defaults: no
        # replay reads those of an answer that lost a race.
        self._ahead = [
            known for known, entry in entries.items() if entry.kind not in (MARKER, DEFAULTS)
        ]
        self._name = name

    def come_to(self, step_id: str) -> None:
        self.ids.add(step_id)
        # A strand at a marker would wait out the round's patience:
        # test_a_marker_does_not_wait_for_effects_of_other_branches.
        if self.on_passed is not None:
            self.on_passed()

    def expect(self, step_id: str) -> None:
        """Record that an entry was written before the run has come to ``step_id``."""
        self._ahead.append(step_id)

    def ahead(self, path: str) -> list[str]:
        """Return the ids of entries below ``path`` that are still ahead; "" stands for all."""
        # The list shrinks at each call: a search through all entries would make failing branches slow.
        self._ahead = [known for known in self._ahead if known not in self.ids]
        below = f"{path}/" if path else ""
        return [
            known for known in self._ahead if known.startswith(below) and known in self._entries
        ]

    def is_replaying(self, path: str) -> bool:
        inside = "" if path == self._name else path  # the root's keys do not name it
        return any(not self.is_excused(known) for known in self.ahead(inside))

    def missing(self, pending: Iterable[str]) -> list[str]:
        """Return the ids that the run has not passed: entries first, then those of ``pending``."""
        return [*self.ahead(""), *(known for known in pending if known not in self.ids)]

    def comes_later(self, path: str, pending: Iterable[str]) -> bool:
        """Whether an entry or a pending id comes later at ``path``; those of other tasks do not count."""
        inside = f"{path}/"
        for known in self.missing(pending):
            if known.startswith(inside):
                made = inside + known[len(inside) :].partition("/")[0]
                is_in_task = known.startswith("~", len(inside))
                if _FIRST.search(made) and not is_in_task and made not in self.ids:
                    return True
        return False

    def is_excused(self, step_id: str) -> bool:
        """Whether ``step_id`` lies in a task or branch that was cancelled, or never entered."""
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
    """The position of one run in ``journal``, which the cursor extends in place."""

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
        """Return the id of the next step in ``scope``, from ``key``, or from ``name`` and a number."""
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
        """Return the id of one ``attempt`` at an ask; attempt 1 has the ask's own id."""
        if attempt == 1:
            return step_id
        again = f"{step_id}~{attempt}"
        self.reached.come_to(again)
        # Counted apart, attempts would be refused without an end:
        # test_a_question_with_changing_words_is_a_difference.
        self._wordings.repeat(step_id, again)
        return again

    def new_path(self, scope: Scope, name: str) -> str:
        if scope.unordered:
            scope.check_order(name)
        path = f"{scope.path}/{name}#{scope.count(name)}"
        self.reached.unentered.add(path)
        self.reached.come_to(path)
        return path

    # -- the record --------------------------------------------------------------------

    def recall(self, step_id: str, kind: str, asked: str, branch: Branch) -> Entry | None:
        """Return the entry at ``step_id`` in ``branch``; ``None`` if there is none.

        An open question that reads differently is withdrawn, so that the body asks again. An answer
        to other words is returned as ``REFUSED``.
        """
        if self.fault is not None:
            raise self.fault
        entry = self._entries.get(step_id)
        if entry is None:
            if self.journal.pending.get(step_id, (kind, asked)) != (kind, asked):
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
        self._entries[step_id] = entry
        branch.ids.append(step_id)
        self._note(step_id, entry)

    def mark(self, step_id: str, value: bool) -> None:  # noqa: FBT001 - the decision itself
        """Record the decision of a marker for the whole call, unless one is recorded already."""
        if step_id not in self._entries:
            entry = self._entries[step_id] = Entry(MARKER, "", value)
            self._note(step_id, entry)

    def recorded(self, step_id: str) -> Entry | None:
        return self._entries.get(step_id)

    def replace(self, step_id: str, entry: Entry) -> None:
        """Replace this run's entry at ``step_id`` by ``entry``, which another run recorded first."""
        # An entry that has been folded away would come back outside of its branch:
        # test_an_earlier_record_of_another_run_replaces_ours.
        if step_id in self._entries:
            self._entries[step_id] = entry

    def reject(self, entry: Entry, error: AnabranchError) -> None:
        entry.error = error_to_json(error)

    def cancel(self, path: str) -> None:
        """Record that the program has cancelled the task or branch at ``path``."""
        self.reached.cancelled.add(path)
        self.budgets.release_in(path)

    def _note(self, step_id: str, entry: Entry) -> None:
        if self._added is not None:
            self._added[step_id] = entry

    @property
    def has_added(self) -> bool:
        return bool(self._added)

    def take_added(self) -> dict[str, Entry]:
        """Return the entries that were added since the last call of this method."""
        if not self._added:
            return {}
        added, self._added = self._added, {}
        return added

    # -- open questions ----------------------------------------------------------------------

    def ask(self, ask: Ask) -> None:
        self.journal.pending[ask.step_id] = (ask.kind, ask.fingerprint)

    def answer(self, step_id: str, answer: Answer) -> None:
        """Record the answer to an open question, which the run may not have reached yet."""
        self.journal.answer({step_id: answer})
        # Otherwise an answer that the body never comes to would go unnoticed:
        # test_an_answer_given_before_the_run_must_be_reached.
        self.reached.expect(step_id)
        self._note(step_id, self._entries[step_id])

    def answer_here(self, ask: Ask, answer: Answer, branch: Branch) -> None:
        """Record the server's own answer to a question that was never open."""
        entry = Entry(ask.kind, ask.fingerprint, answer.value, answer.error, tokens=None)
        self.record(ask.step_id, entry, branch)

    def answer_late(self, step_id: str, entry: Entry) -> None:
        """Record an answer that came after a sleep's time, unless the question is withdrawn."""
        if (asked := self.journal.pending.pop(step_id, None)) is not None:
            if asked != (entry.kind, entry.fingerprint):
                # Otherwise a late answer to the old words would count as one to the new words:
                # test_an_answer_later_than_the_clock_to_the_old_words_is_refused.
                self._wordings.refuse(step_id, entry)
            self._entries[step_id] = entry
            self.reached.expect(step_id)
            self._note(step_id, entry)

    def wake(self, ask: Ask) -> None:
        self.withdraw(ask.step_id)
        entry = self._entries[ask.step_id] = Entry(ask.kind, ask.fingerprint)
        self._note(ask.step_id, entry)

    def answered(self, step_id: str) -> Entry:
        """Return the answer to a question, and record that the body has read the answer."""
        # Marked as unread, an answer that the body acted on would be refused later:
        # test_a_hot_run_continues_with_the_new_words.
        self.journal.unread.discard(step_id)
        return self._entries[step_id]

    def withdraw(self, step_id: str) -> None:
        self.journal.pending.pop(step_id, None)

    # -- folding -----------------------------------------------------------------------------

    def inside(self, branch: Branch, *, failed: bool) -> set[str]:
        """Return the ids of the entries inside ``branch``, which has ended."""
        inner = set(branch.ids)
        # Entries of a cancelled task would stay behind, and be missed in the next replay:
        # test_records_of_a_cancelled_task_fold_with_its_branch.
        if self.reached.cancelled or failed:
            inner.update(self.reached.ahead(branch.path))
        return inner

    def fold(self, branch: Branch, inner: set[str], entry: Entry, into: Branch) -> None:
        journal = self.journal
        if inner:
            journal.fold(inner)
        # Otherwise a journal would grow with every finished branch:
        # test_a_finished_branch_is_one_entry_with_its_value_and_its_cost.
        for path in (branch.path, *branch.noticed):
            journal.delivered.pop(path, None)
            journal.deadlines.pop(path, None)
        # Tokens reserved for a request that was dropped would stay taken for ever:
        # test_reservations_in_an_ended_branch_are_free_again.
        self.budgets.release_in(branch.path)
        entry.tokens = branch.account.tokens
        self.record(branch.path, entry, into)

    def merge(self, branch: Branch, into: Branch) -> None:
        """Move the entries of ``branch``, which has ended, into the branch around it."""
        self.budgets.release_in(branch.path)
        into.ids += branch.ids
        into.noticed += (branch.path, *branch.noticed)
        if branch.path in self.journal.deadlines and not branch.is_expired:
            # A later round would stop a branch that has ended in time:
            # test_a_branch_done_in_time_is_not_stopped_in_a_later_round.
            self.journal.deadlines[branch.path] = None

    # -- drift -------------------------------------------------------------------------------

    def has_reached_all(self) -> bool:
        """Whether every recorded step has been passed, or lies in a cancelled task or branch."""
        missing = self.reached.missing(self.journal.pending)
        return all(map(self.reached.is_excused, missing))

    def check_all_reached(self, error: BaseException | None) -> None:
        """Set a fault if a recorded step was neither passed nor cancelled: that is drift.

        A body that fails with ``error`` must have come to the open questions as well; otherwise the
        call withdraws the questions that its body no longer asks.
        """
        pending = self.journal.pending
        for step_id in self.reached.missing(pending):
            entry = self._entries.get(step_id)
            is_missed = (entry or error) is not None and not self.reached.is_excused(step_id)
            if is_missed and self.fault is None:
                kind = pending[step_id][0] if entry is None else entry.kind
                found = "not reached" if error is None else f"{type(error).__name__} before it"
                self.fail(NonDeterminismError(step_id, kind, found))
            # A question that nothing awaits would stay open:
            # test_an_open_question_of_a_cancelled_sibling_is_no_drift.
            pending.pop(step_id, None)  # nothing awaits it now
            self.budgets.release(step_id)
