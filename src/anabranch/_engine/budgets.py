"""Budgets of one run: what its branches have spent and reserved, and which requests they admit.

Whether a request to a model is admitted depends on what others have spent and reserved by then, and
that is no longer so when the call is replayed: by then they may be settled. So the decision is part
of the record. A refusal is the request's outcome (``operations.py`` writes it), and a reservation
stays in the journal until it is settled. What earlier rounds have spent and reserved counts from the
first moment, in whatever order a replay passes the recorded steps (for what was answered since, the
usage counts: ``_asking/`` sees to that). So what is new is decided as in a body that stayed alive.

Requests at the same time are all admitted before one is answered (``barrier.py``). One thing is left
to time: of two requests in different tasks that waited for something else first, the one that comes
first may take what the other lacks, and of two replies that together use more than was granted, the
second is refused.
"""

from __future__ import annotations

from anabranch._budget import BudgetError, Limits, Reservation
from anabranch._engine.branch import Branch
from anabranch._engine.journal import Entry, Journal
from anabranch.errors import BranchTokenError, error_to_json


class Budgets:
    """The budgets of one run of ``journal``."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._spent = journal.spent()
        self._reserved = {
            step_id: Reservation(tokens) for step_id, (tokens, _) in journal.reserved.items()
        }

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
        journal = self._journal
        if step_id in journal.reserved:  # in an earlier round, for this same request
            return journal.reserved[step_id][1]
        if step_id in journal.pending:  # asked before there was a budget
            return reply
        try:
            reservation = branch.account.reserve(prompt + 1, prompt + reply)
        except BudgetError as refusal:
            raise _as_branch_error(refusal) from None
        self._reserved[step_id] = reservation
        granted = reservation.tokens - prompt
        journal.reserved[step_id] = (reservation.tokens, granted)
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
            entry.error = error_to_json(error)
            raise error from None

    def release(self, step_id: str) -> None:
        """Give back what is reserved for ``step_id``, if anything is: no reply will settle it."""
        self._journal.reserved.pop(step_id, None)
        if (reservation := self._reserved.pop(step_id, None)) is not None:
            reservation.release()

    def release_in(self, path: str) -> None:
        """Give back what is reserved below ``path``, which has ended."""
        for step_id in self._reserved_in(f"{path}/"):
            self.release(step_id)

    def _reserved_in(self, prefix: str) -> list[str]:
        return [step_id for step_id in self._reserved if step_id.startswith(prefix)]


def _as_branch_error(refusal: BudgetError) -> BranchTokenError:
    account = refusal.account
    return BranchTokenError(account.name, refusal.wanted, account.max_tokens or 0)
