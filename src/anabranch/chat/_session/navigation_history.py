"""The places that a session has been at, for ``/undo`` to return to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from anabranch.tree import TreeStore

Place: TypeAlias = tuple[str, str | None]
"""A thread's id and a node's in it; ``None`` is the place before the first node."""

MAX_PLACES = 100


class NavigationHistory:
    """The latest places of one session, at most 100, the last one at the end."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._places: deque[Place] = deque(places, maxlen=MAX_PLACES)

    @property
    def last(self) -> Place:
        """The latest place."""
        return self._places[-1]

    def add(self, place: Place) -> None:
        """Add the place where the session is, unless it has not moved."""
        if self.last != place:
            self._places.append(place)

    async def before(self, place: Place, store: TreeStore) -> NavigationHistory | None:
        """Return the history up to the latest place other than ``place`` that still exists.

        Returns ``None`` if there is no such place.
        """
        places = list(self._places)
        while places and (places[-1] == place or await _is_deleted(places[-1], store)):
            places.pop()
        return NavigationHistory(places) if places else None


async def _is_deleted(place: Place, store: TreeStore) -> bool:
    node_id = place[1]
    return node_id is not None and await store.node(node_id) is None
