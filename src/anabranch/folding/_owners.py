"""Owners of sessions: the name under which a session is stored begins with its owner.

Every principal has names of its own: the session or the branch of another one is as unknown to it as
one that was never made. So it cannot learn which names others use, either. What is read for an owner
goes through :class:`OwnedRows`, which has the owner's records alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from anabranch.folding._branch_store import BranchRows
from anabranch.folding._records import Branch, Session

MARK, END = "@", "/"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who reads and writes branches.

    Attributes:
        principal: empty for callers that are not distinguished, and ``None`` for the host itself,
            which finds everything, and names sessions as they are stored.
    """

    principal: str | None

    def stored_name(self, session_id: str) -> str:
        """Return the name under which a session is stored that the owner names.

        The stored name of a session of its own means that session, too.
        """
        return session_id if self.owns(session_id) else f"{self._scope}{END}{session_id}"

    def owns(self, stored: str) -> bool:
        """Whether the session with this stored name is the owner's."""
        if self.principal is None:
            return True
        if not self.principal:
            return not stored.startswith(MARK) or stored.startswith(f"{MARK}{END}{MARK}")
        return stored.startswith(f"{self._scope}{END}")

    def reads(self, stored: str) -> bool:
        """Whether it is the owner's, or the account of all that are."""
        return self.owns(stored) or stored == self._scope

    @property
    def _scope(self) -> str:
        text = (self.principal or "").encode("utf-8", "surrogatepass")
        return MARK + (blake2b(text, digest_size=16).hexdigest() if text else "")


HOST = Owner(None)
"""The host itself."""


def shown_name(stored: str) -> str:
    """Return the name by which its principal knows a session."""
    return stored.partition(END)[2] if stored.startswith(MARK) else stored


def account_name(stored: str) -> str | None:
    """Return the name of the account of all sessions of a session's owner.

    It is that of a session which no caller can name. ``None`` for the sessions of callers that are not
    distinguished.
    """
    scope, ends, _ = stored.partition(END)
    return scope if ends and scope.startswith(MARK) and scope != MARK else None


class OwnedRows:
    """The records of one owner as a transaction sees them. What each method does is said at the port."""

    def __init__(self, rows: BranchRows, owner: Owner) -> None:
        self._rows = rows
        self._owner = owner

    def session(self, session_id: str) -> Session | None:
        return self._rows.session(session_id) if self._owner.reads(session_id) else None

    def branch(self, branch_id: str) -> Branch | None:
        found = self._rows.branch(branch_id)
        return found if found and self._owner.owns(found.session_id) else None

    def open_children(self, branch_id: str) -> Sequence[Branch]:
        return self._own(self._rows.open_children(branch_id))

    def open_branches(self, session_id: str) -> Sequence[Branch]:
        return self._own(self._rows.open_branches(session_id))

    def put_session(self, session: Session) -> None:
        self._rows.put_session(session)

    def put_branch(self, branch: Branch) -> None:
        self._rows.put_branch(branch)

    def count_open(self, change: int, limit: int | None = None) -> bool:
        return self._rows.count_open(change, limit)

    def _own(self, found: Sequence[Branch]) -> Sequence[Branch]:
        return [each for each in found if self._owner.owns(each.session_id)]
