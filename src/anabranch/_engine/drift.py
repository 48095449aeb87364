"""The search for drift: what a run has reached of its record, and what of it need not be reached."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from anabranch._engine.journal import Entry

_ORDINAL = re.compile(r"[.#]\d+(~\d+)?$")


class Reached:
    """What one run has reached of ``entries``, which may grow and shrink meanwhile.

    Args:
        entries: what is recorded.
        name: path of the root branch.

    Attributes:
        ids: ids and paths that the run has come to.
        cancelled: paths of tasks and branches that the program itself has cancelled.
        unentered: paths of branches that were made and not (yet) entered.
    """

    def __init__(self, entries: Mapping[str, Entry], name: str) -> None:
        self.ids: set[str] = set()
        self.cancelled: set[str] = set()
        self.unentered: set[str] = set()
        self._entries = entries
        self._ahead = list(entries)
        self._name = name

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
