"""Where a session has been, to go back to.

Owns the order of these places, and that what is gone is none. Going there is the session's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from anabranch.tree import TreeStore

__all__ = ["Place", "Trail"]

Place: TypeAlias = tuple[str, str | None]
"""A thread and a node in it; ``None`` is the place before all nodes."""

REMEMBERED = 100
"""Places that can be gone back to."""


class Trail:
    """The places of one session, the latest last."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._places: deque[Place] = deque(places, maxlen=REMEMBERED)

    @property
    def last(self) -> Place:
        """The latest place."""
        return self._places[-1]

    def note(self, place: Place) -> None:
        """Remember where the session is; to have stayed is nothing to remember."""
        if self.last != place:
            self._places.append(place)

    async def before(self, place: Place, store: TreeStore) -> Trail | None:
        """Return the trail up to the latest other place whose node is there, ``None`` if none."""
        places = list(self._places)
        while places and (places[-1] == place or await _is_gone(places[-1], store)):
            places.pop()
        return Trail(places) if places else None


async def _is_gone(place: Place, store: TreeStore) -> bool:
    cursor = place[1]
    return cursor is not None and await store.node(cursor) is None
