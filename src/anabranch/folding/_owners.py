"""Whose a session is, which the name says under which it is stored.

Every principal has names of its own: the session or the branch of another one is as unknown to it as
one that was never made. So it cannot learn which names others use, either.
"""

from __future__ import annotations

from hashlib import blake2b

from anabranch.folding._errors import SessionMismatchError, UnknownBranchError
from anabranch.folding._records import Branch

__all__ = ["checked_owner", "shown_name", "stored_name"]

MARK = "@"


def stored_name(principal: str | None, session_id: str) -> str:
    """Return the name under which a principal's session is stored.

    ``principal`` is empty for callers that are not distinguished, and ``None`` for the host itself,
    which names sessions as they are stored.
    """
    if principal is None or not (principal or session_id.startswith(MARK)):
        return session_id
    text = principal.encode("utf-8", "surrogatepass")
    scope = blake2b(text, digest_size=16).hexdigest() if principal else ""
    return f"{MARK}{scope}/{session_id}"


def shown_name(stored: str) -> str:
    """Return the name by which its principal knows a session."""
    return stored.partition("/")[2] if stored.startswith(MARK) else stored


def checked_owner(
    found: Branch | None, branch_id: str, session_id: str | None, principal: str | None
) -> Branch:
    """Return a branch that ``principal`` names, within a session if it names one, too.

    Raises:
        UnknownBranchError: there is none, or it is another principal's.
        SessionMismatchError: it belongs to another session.
    """
    if found is None or not _belongs_to(principal, found.session_id):
        raise UnknownBranchError(branch_id)
    if session_id is not None and found.session_id != session_id:
        raise SessionMismatchError(branch_id)
    return found


def _belongs_to(principal: str | None, stored: str) -> bool:
    return stored_name(principal, stored if principal is None else shown_name(stored)) == stored
